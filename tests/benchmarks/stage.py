"""The server and the worker processes that every claim is measured with.

Workers are real processes (`tests.benchmarks.worker`): imported and made ready first, then started by a word on their
standard input, so that no import is timed. Each measurement has a namespace of its own; what it leaves is removed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import redis
from dramatiq.broker import Broker

from fleet.broker import keys
from tests.benchmarks.jobs import QUEUE, broker_of

ROOT = Path(__file__).parents[2]
_LONGEST_WAIT = 180.0


@dataclass
class Worker:
    """A worker process that waits for its word."""

    process: subprocess.Popen[str]

    def say(self, word: str) -> None:
        """`go` starts it; `stop` stops it."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def read(self) -> Any:
        """The next line that it says, as JSON."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"A worker process ended with {self.process.wait()}; what it wrote stands above.")
        return json.loads(line)

    def stop(self) -> dict[str, Any]:
        """Stop it: its latencies in ms, its CPU seconds since it was ready, the warnings that it logged."""
        self.say("stop")
        said: dict[str, Any] = self.read()
        self.process.wait(30)
        return said


@dataclass
class Stage:
    """A server, and a namespace for one measurement."""

    redis_url: str
    namespace: str = field(default_factory=lambda: f"bench-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.client = redis.Redis.from_url(self.redis_url)

    def broker(self, kind: Literal["ours", "stock"], **options: Any) -> Broker:
        """A broker for a producer in this process."""
        return broker_of(kind, self.redis_url, self.namespace, **options)

    @contextmanager
    def workers(
        self, kind: str, *, processes: int = 1, threads: int = 8, prefetch: int = 0, queues: int = 1
    ) -> Iterator[list[Worker]]:
        """Worker processes that are ready; they are killed at the end of the block if they still run."""
        arguments = [kind, self.redis_url, self.namespace, str(threads), str(queues)]
        environment = {**os.environ, "dramatiq_queue_prefetch": str(prefetch)}
        started = [
            Worker(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.benchmarks.worker", *arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=ROOT,
                    env=environment,
                )
            )
            for _ in range(processes)
        ]
        try:
            for worker in started:
                worker.read()
            yield started
        finally:
            for worker in started:
                worker.process.kill()
                worker.process.wait()

    def wait_until_empty(self) -> None:
        """Until every message that was sent has been acknowledged."""
        bodies = keys.bodies(self.namespace, QUEUE)
        ends = time.monotonic() + _LONGEST_WAIT
        while self.client.hlen(bodies):
            if time.monotonic() > ends:
                raise RuntimeError(f"{self.client.hlen(bodies)} messages are not done after {_LONGEST_WAIT:g} s.")
            time.sleep(0.005)

    def clear(self) -> None:
        """Remove what the last measurement left; the next has another namespace."""
        for key in self.client.scan_iter(f"{self.namespace}:*", count=1000):
            self.client.unlink(key)
        self.namespace = f"bench-{uuid.uuid4().hex[:8]}"
