"""The same test on both sides: Dramatiq's own broker with its worker, and ours, each with the same middleware."""

from __future__ import annotations

from typing import Any

import dramatiq
from dramatiq import Broker, Worker
from dramatiq.middleware import Callbacks, CurrentMessage, GroupCallbacks, Middleware, Pipelines, Retries
from dramatiq.rate_limits.backends import RedisBackend as RateLimits
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend as ResultBackend

from fleet.broker import FleetBroker, keys
from fleet.workers.worker import FleetWorker
from tests.broker.station import QUEUE, stock

KEPT_MS = 60_000  # Dramatiq hashes a result's key, so that a test cannot find its own: they go by themselves


class Side:
    """One of the two; `broker` has every optional piece of Dramatiq's, and `work` starts a worker on it."""

    def __init__(self, whose: str, url: str, namespace: str) -> None:
        self.whose, self.namespace = whose, namespace
        self.results = ResultBackend(url=url, namespace=f"{namespace}-results")  # type: ignore[no-untyped-call]
        self.limits = RateLimits(url=url)  # type: ignore[no-untyped-call]
        retries = Retries(min_backoff=1, max_backoff=20, max_retries=3)  # type: ignore[no-untyped-call]
        middleware: list[Middleware] = [
            CurrentMessage(),
            Pipelines(),
            Callbacks(),
            GroupCallbacks(self.limits, barrier_ttl=KEPT_MS),
            retries,
            Results(backend=self.results, result_ttl=KEPT_MS),  # type: ignore[no-untyped-call]
        ]
        self.broker: Broker
        if whose == "stock":
            self.broker = stock(url, namespace, *middleware)
        else:
            self.broker = FleetBroker(url=url, namespace=namespace, middleware=middleware)
            self.broker.declare_queue(QUEUE)
        self._workers: list[Worker] = []

    def actor(self, function: Any, **options: Any) -> Any:
        return dramatiq.actor(function, broker=self.broker, queue_name=options.pop("queue_name", QUEUE), **options)

    def work(self, threads: int = 2, prefetch: int | None = None, queues: set[str] | None = None) -> Worker:
        kind: type[Worker] = Worker if self.whose == "stock" else FleetWorker
        worker = kind(self.broker, queues=queues, worker_threads=threads, worker_timeout=50)
        if prefetch is not None:
            worker.queue_prefetch = prefetch
        worker.start()
        self._workers.append(worker)
        return worker

    def join(self, queue: str = QUEUE) -> None:
        """Wait until every message of the queue ended; Dramatiq's own way."""
        self.broker.join(queue, interval=10, timeout=10_000)  # type: ignore[call-arg]
        for worker in self._workers:
            worker.join()

    def stop(self) -> None:
        while self._workers:
            self._workers.pop().stop(timeout=2_000)

    def dead(self, queue: str = QUEUE) -> int:
        """How many dead letters a queue has."""
        return int(self.broker.client.zcard(keys.dead(self.namespace, queue)))  # type: ignore[attr-defined]
