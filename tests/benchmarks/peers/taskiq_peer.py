"""taskiq: its Redis stream broker, which acknowledges; synchronous jobs run in a pool of threads."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any

import driver
import jobs
from taskiq import TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource
from taskiq_redis import RedisStreamBroker

_QUEUE = os.environ.get("BENCH_QUEUE", driver.QUEUE)


def _broker(queue: str) -> RedisStreamBroker:
    return RedisStreamBroker(jobs.URL, queue_name=f"{jobs.NAMESPACE}:{queue}", idle_timeout=10_000)


broker = _broker(_QUEUE)


async def nap(seconds: float) -> None:
    await asyncio.sleep(seconds)
    jobs.napped()


async def long(number: int, seconds: float) -> None:
    jobs.started(number)
    await asyncio.sleep(seconds)
    jobs.napped()


def _tasks(of: RedisStreamBroker) -> dict[str, Any]:
    bodies = {**jobs.JOBS, "nap": nap, "long": long}
    labels = {"tick": {"schedule": [{"interval": 1}]}}
    return {name: of.task(task_name=name, **labels.get(name, {}))(body) for name, body in bodies.items()}


TASKS = _tasks(broker)
scheduler = TaskiqScheduler(broker, [LabelScheduleSource(broker)])


class Peer:
    """taskiq, asked from a loop of its own; a queue is a broker."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._made: dict[str, dict[str, Any]] = {}

    def _of(self, queue: str) -> dict[str, Any]:
        if queue not in self._made:
            made = broker if queue == _QUEUE else _broker(queue)
            self._made[queue] = TASKS if queue == _QUEUE else _tasks(made)
            self._loop.run_until_complete(made.startup())
        return self._made[queue]

    def send(self, queue: str, job: str, *args: Any) -> None:
        self._loop.run_until_complete(self._of(queue)[job].kiq(*args))

    def send_many(self, queue: str, job: str, calls: Sequence[tuple[Any, ...]]) -> None:
        task = self._of(queue)[job]

        async def all_of_them() -> None:
            for start in range(0, len(calls), 100):
                await asyncio.gather(*(task.kiq(*args) for args in calls[start : start + 100]))

        self._loop.run_until_complete(all_of_them())

    def worker(self, threads: int, queues: Sequence[str]) -> None:
        os.environ["BENCH_QUEUE"] = queues[0]
        options = ["--workers", "1", "--max-threadpool-threads", str(threads), "--max-async-tasks", str(threads)]
        _become("worker", "taskiq_peer:broker", *options, "--log-level", "ERROR")

    def scheduler(self) -> None:
        _become("scheduler", "taskiq_peer:scheduler", "--log-level", "ERROR")


def _become(*argv: str) -> None:
    os.execv(sys.executable, [sys.executable, "-m", "taskiq", *argv])


if __name__ == "__main__":
    driver.main(Peer())
