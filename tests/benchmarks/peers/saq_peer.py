"""saq: coroutines, `concurrency` is the number of threads asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import driver
import jobs
from saq import CronJob, Queue, Worker


async def nap(ctx: Any, *, args: Sequence[Any]) -> None:
    await asyncio.sleep(args[0])
    jobs.napped()


async def long(ctx: Any, *, args: Sequence[Any]) -> None:
    jobs.started(args[0])
    await asyncio.sleep(args[1])
    jobs.napped()


def _plain(body: Any) -> Any:
    async def run(ctx: Any, *, args: Sequence[Any] = ()) -> None:
        body(*args)

    return run


FUNCTIONS = {name: _plain(body) for name, body in jobs.JOBS.items()} | {"nap": nap, "long": long}


async def tick(ctx: Any) -> None:
    jobs.tick()


class Peer:
    """saq, asked from a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._queues: dict[str, Queue] = {}

    def _queue(self, name: str) -> Queue:
        return self._queues.setdefault(name, Queue.from_url(jobs.URL, name=f"{jobs.NAMESPACE}-{name}"))

    def send(self, queue: str, job: str, *args: Any) -> None:
        self._loop.run_until_complete(self._queue(queue).enqueue(job, args=args, timeout=600))

    def send_many(self, queue: str, job: str, calls: Sequence[tuple[Any, ...]]) -> None:
        of = self._queue(queue)

        async def all_of_them() -> None:
            for start in range(0, len(calls), 100):
                chunk = calls[start : start + 100]
                await asyncio.gather(*(of.enqueue(job, args=args, timeout=600) for args in chunk))

        self._loop.run_until_complete(all_of_them())

    def worker(self, threads: int, queues: Sequence[str]) -> None:
        self._run(queues[0], concurrency=threads)

    def scheduler(self) -> None:
        self._run(driver.QUEUE, concurrency=8, cron_jobs=[CronJob(tick, cron="* * * * * */1")])

    def _run(self, queue: str, **options: Any) -> None:
        async def run() -> None:
            await Worker(self._queue(queue), functions=list(FUNCTIONS.items()), **options).start()

        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(run())


if __name__ == "__main__":
    driver.main(Peer())
