"""Huey doing the same work: `RedisHuey` as it comes, results off since ours stores none, the same bodies.

A consumer is a process with so many threads, huey's default worker type. Its others, measured beside it (processes; no
blocking read), were within the noise of the machine.

Not the same: huey acknowledges nothing. A task is gone once it is fetched, so a consumer that dies loses what it ran.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from huey import RedisHuey  # type: ignore[import-untyped]

from tests.benchmarks.jobs import BODIES


def made(url: str, namespace: str) -> Any:
    """A huey with a queue of this name."""
    return RedisHuey(namespace, url=url, results=False)


def task(huey: Any, name: str) -> Callable[..., object]:
    """The task of this name; a call sends it."""
    declared: Callable[..., object] = huey.task(name=name)(BODIES[name])
    return declared


def consumer(url: str, namespace: str, threads: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """What starts a consumer of every task, and what stops it once it has done what it fetched."""
    huey = made(url, namespace)
    for name in BODIES:
        task(huey, name)
    huey.storage.conn.ping()
    worker = huey.create_consumer(workers=threads, periodic=False)
    return worker.start, lambda: worker.stop(graceful=True)
