"""A broker of a test's own with its workers, and where in Redis each message is."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import CurrentMessage, Middleware, Retries

from fleet.broker import FleetBroker, keys
from fleet.workers.worker import FleetWorker
from tests.waiting import wait_until

QUEUE = "work"
LOST_AFTER = timedelta(seconds=1)


class Station:
    """Starts workers on one namespace and stops them at the end; actors are declared on `broker`."""

    def __init__(self, url: str, namespace: str, *middleware: Middleware) -> None:
        self.url, self.namespace = url, namespace
        retries = Retries(min_backoff=1, max_backoff=20, max_retries=3)  # type: ignore[no-untyped-call]
        self.middleware = [CurrentMessage(), retries, *middleware]
        self.broker = FleetBroker(url=url, namespace=namespace, middleware=self.middleware)
        self.workers: list[FleetWorker] = []

    def actor(self, function: Any, **options: Any) -> dramatiq.Actor[Any, Any]:
        return dramatiq.actor(function, broker=self.broker, queue_name=QUEUE, **options)

    def work(self, threads: int = 2, prefetch: int | None = None, **options: Any) -> FleetWorker:
        options = {"lost_after": LOST_AFTER, **options}
        worker = FleetWorker(self.broker, worker_threads=threads, worker_timeout=50, prefetch=prefetch, **options)
        worker.start()
        self.workers.append(worker)
        return worker

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop(timeout=2_000)
        self.workers.clear()
        self.broker.client.close()

    def places(self) -> dict[bytes, list[str]]:
        return places(self.broker.client, self.namespace)

    def until_empty(self, seconds: float = 30) -> None:
        """Wait until no message waits, is held, or is delayed: its body is then gone, which one look can tell.

        Looking through the places one after the other would miss a message that moves between two looks.
        """
        bodies = [keys.bodies(self.namespace, name) for name in (QUEUE, keys.delayed(QUEUE))]
        wait_until(lambda: not self.broker.client.exists(*bodies), seconds)

    def letters(self) -> dict[bytes, bytes]:
        """Dead letters' ids and details."""
        found: dict[bytes, bytes] = self.broker.client.hgetall(keys.dead_details(self.namespace, QUEUE))
        return found


def stock(url: str, namespace: str, *middleware: Middleware, **options: Any) -> RedisBroker:
    """Dramatiq's own broker on the same keys, with its queue declared.

    It is given a host and a port: of a URL it makes a pool of its own, for which redis-py's retries are off.
    """
    where = redis.ConnectionPool.from_url(url).connection_kwargs
    options = {"host": where["host"], "port": where["port"], "db": where.get("db", 0), **options}
    broker = RedisBroker(namespace=namespace, middleware=list(middleware), **options)  # type: ignore[no-untyped-call]
    broker.declare_queue(QUEUE)
    broker.do_qsize(QUEUE)  # loads its scripts, so that a proxy counts what comes after
    return broker


def places(client: redis.Redis, namespace: str, queue: str = QUEUE) -> dict[bytes, list[str]]:
    """Every id that is anywhere, and everywhere it is."""
    found: dict[bytes, list[str]] = defaultdict(list)
    for name in (queue, keys.delayed(queue)):
        for id in client.lrange(keys.queue(namespace, name), 0, -1):
            found[id].append("waiting")
        for acks in client.keys(f"{namespace}:__acks__.*.{name}"):
            for id in client.smembers(acks):
                found[id].append(acks.decode().split(".")[1])
    for id in client.zrange(keys.due(namespace, queue), 0, -1):
        found[id].append("delayed")
    for id in client.zrange(keys.dead(namespace, queue), 0, -1):
        found[id].append("dead")
    return dict(found)
