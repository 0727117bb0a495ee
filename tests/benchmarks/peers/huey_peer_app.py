"""huey: its thread workers. It acknowledges nothing: a task is gone once it is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import driver
import jobs
from huey import RedisHuey, crontab


class Peer:
    """huey; a queue is an instance."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Any, dict[str, Any]]] = {}

    def _huey(self, queue: str) -> tuple[Any, dict[str, Any]]:
        if queue not in self._made:
            huey = RedisHuey(f"{jobs.NAMESPACE}-{queue}", url=jobs.URL, results=False)
            self._made[queue] = huey, {name: huey.task(name=name)(body) for name, body in jobs.JOBS.items()}
            huey.periodic_task(crontab(), name="every_minute")(jobs.tick)
        return self._made[queue]

    def send(self, queue: str, job: str, *args: Any) -> None:
        self._huey(queue)[1][job](*args)

    def send_many(self, queue: str, job: str, calls: Sequence[tuple[Any, ...]]) -> None:
        task = self._huey(queue)[1][job]
        for args in calls:
            task(*args)

    def worker(self, threads: int, queues: Sequence[str]) -> None:
        if len(queues) > 1:
            raise SystemExit("a consumer of huey serves one queue")
        self._huey(queues[0])[0].create_consumer(workers=threads, periodic=False).run()

    def scheduler(self) -> None:
        self._huey(driver.QUEUE)[0].create_consumer(workers=1, periodic=True).run()


if __name__ == "__main__":
    driver.main(Peer())
