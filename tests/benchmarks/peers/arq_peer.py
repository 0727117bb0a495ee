"""arq: coroutines, at a poll of 10 ms; `max_jobs` is the number of threads asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import driver
import jobs
from arq import create_pool, cron, func
from arq.connections import RedisSettings
from arq.worker import Worker

SETTINGS = RedisSettings.from_dsn(jobs.URL)


async def nap(ctx: Any, seconds: float) -> None:
    await asyncio.sleep(seconds)
    jobs.napped()


async def long(ctx: Any, number: int, seconds: float) -> None:
    jobs.started(number)
    await asyncio.sleep(seconds)
    jobs.napped()


def _plain(body: Any) -> Any:
    async def run(ctx: Any, *args: Any) -> None:
        body(*args)

    return run


FUNCTIONS = {name: _plain(body) for name, body in jobs.JOBS.items()} | {"nap": nap, "long": long}


class Peer:
    """arq, asked from a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pool: Any = None

    def _ask(self, queue: str, job: str, args: Sequence[Any]) -> Any:
        return self._pool.enqueue_job(job, *args, _queue_name=f"{jobs.NAMESPACE}:{queue}")

    def _connect(self) -> None:
        self._pool = self._pool or self._loop.run_until_complete(create_pool(SETTINGS))

    def send(self, queue: str, job: str, *args: Any) -> None:
        self._connect()
        self._loop.run_until_complete(self._ask(queue, job, args))

    def send_many(self, queue: str, job: str, calls: Sequence[tuple[Any, ...]]) -> None:
        self._connect()

        async def all_of_them() -> None:
            for start in range(0, len(calls), 100):
                await asyncio.gather(*(self._ask(queue, job, args) for args in calls[start : start + 100]))

        self._loop.run_until_complete(all_of_them())

    def worker(self, threads: int, queues: Sequence[str]) -> None:
        self._run(queues[0], max_jobs=threads)

    def scheduler(self) -> None:
        every = set(range(60))
        self._run(driver.QUEUE, max_jobs=8, cron_jobs=[cron(_plain(jobs.tick), name="tick", second=every, unique=True)])

    def _run(self, queue: str, **options: Any) -> None:
        functions = [func(body, name=name, keep_result=0, timeout=600) for name, body in FUNCTIONS.items()]
        asyncio.set_event_loop(self._loop)
        Worker(
            functions, queue_name=f"{jobs.NAMESPACE}:{queue}", redis_settings=SETTINGS, poll_delay=0.01, **options
        ).run()


if __name__ == "__main__":
    driver.main(Peer())
