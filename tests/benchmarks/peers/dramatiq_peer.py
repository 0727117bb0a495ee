"""Stock Dramatiq (BENCH_KIND=stock, prefetch by `dramatiq_queue_prefetch`) or Nightshift (ours), of this checkout.

Stock's worker is what its command line starts, without its second process; stock has no scheduler, so the one that its
documentation names is APScheduler's process, which is not replicated.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import driver
import jobs
import redis
from dramatiq import Actor

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))
OURS = os.environ.get("BENCH_KIND", "ours") == "ours"


# Nothing of `fleet` is imported for stock: what it would hold in memory is not stock's.
def _ours() -> Any:
    if not os.environ.get("BENCH_WHOLE"):
        from fleet.broker import FleetBroker

        return FleetBroker(url=jobs.URL, namespace=jobs.NAMESPACE)
    from tests.benchmarks.jobs import broker_of

    return broker_of("ours", jobs.URL, jobs.NAMESPACE, whole=True)


def _stock() -> Any:
    from dramatiq.brokers.redis import RedisBroker

    stock: Any = RedisBroker
    most = int(os.environ.get("BENCH_CONNECTIONS", "0"))
    if not most:
        return stock(url=jobs.URL, namespace=jobs.NAMESPACE)
    return stock(client=redis.Redis.from_url(jobs.URL, max_connections=most), namespace=jobs.NAMESPACE)


def _actor_kind() -> Any:
    if not OURS:
        return Actor
    from fleet.actor import FleetActor

    return FleetActor


class Peer:
    """Dramatiq's actors, or ours."""

    def __init__(self) -> None:
        self._broker: Any = _ours() if OURS else _stock()
        self._actors: dict[tuple[str, str], Any] = {}

    def _actor(self, queue: str, job: str) -> Any:
        if (queue, job) not in self._actors:
            made: Any = _actor_kind()(
                jobs.JOBS[job],
                broker=self._broker,
                actor_name=f"{job}_{queue}",
                queue_name=queue,
                priority=0,
                options={},
            )
            if OURS:  # what `queue.actor` says of one that was given nothing of its own
                made.budget = made.retry = made.on_lost = None
                made.safe_args = ()
            self._actors[queue, job] = made
        return self._actors[queue, job]

    def send(self, queue: str, job: str, *args: Any) -> None:
        self._actor(queue, job).send(*args)

    def send_many(self, queue: str, job: str, calls: Sequence[tuple[Any, ...]]) -> None:
        actor = self._actor(queue, job)
        if OURS:
            actor.send_many(calls)
            return
        for args in calls:
            actor.send(*args)

    def worker(self, threads: int, queues: Sequence[str]) -> None:
        import dramatiq

        kind: Any = dramatiq.Worker
        if OURS:
            from fleet.workers.worker import FleetWorker as kind
        for queue in queues:
            for job in jobs.JOBS:
                self._actor(queue, job)
        self._broker.emit_after("process_boot")
        dramatiq.set_broker(self._broker)
        kind(self._broker, worker_threads=threads).start()
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        threading.Event().wait()

    def scheduler(self) -> None:
        if OURS:
            os.execv(sys.executable, [sys.executable, "-m", "beat", "--app", os.environ["BENCH_APP"]])
        from apscheduler.schedulers.blocking import BlockingScheduler

        tick = self._actor(driver.QUEUE, "tick")
        scheduler = BlockingScheduler(timezone="UTC")
        scheduler.add_job(tick.send, "cron", second="*")
        scheduler.start()


if __name__ == "__main__":
    driver.main(Peer())
