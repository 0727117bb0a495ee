"""RQ: its SimpleWorker, one job at a time in one process (it has no threads); results are not kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import driver
import jobs
import redis
from rq import Queue, SimpleWorker
from rq.cron import CronScheduler

connection = redis.Redis.from_url(jobs.URL)


class Peer:
    """RQ."""

    def __init__(self) -> None:
        self._queues: dict[str, Queue] = {}

    def _queue(self, name: str) -> Queue:
        return self._queues.setdefault(name, Queue(f"{jobs.NAMESPACE}-{name}", connection=connection))

    def send(self, queue: str, job: str, *args: Any) -> None:
        self._queue(queue).enqueue_call(f"jobs.{job}", args=args, result_ttl=0)

    def send_many(self, queue: str, job: str, calls: Sequence[tuple[Any, ...]]) -> None:
        prepared = [Queue.prepare_data(f"jobs.{job}", args=args, result_ttl=0) for args in calls]
        for start in range(0, len(prepared), 500):
            self._queue(queue).enqueue_many(prepared[start : start + 500])

    def worker(self, threads: int, queues: Sequence[str]) -> None:
        SimpleWorker([self._queue(name) for name in queues], connection=connection).work(logging_level="ERROR")

    def scheduler(self) -> None:
        scheduler = CronScheduler(connection, logging_level="ERROR")
        scheduler.register(jobs.tick, self._queue(driver.QUEUE).name, interval=1, result_ttl=0)
        scheduler.start()


if __name__ == "__main__":
    driver.main(Peer())
