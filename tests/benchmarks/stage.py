"""The server and the worker processes that every claim is measured with.

Workers are real processes (`tests.benchmarks.worker`): imported and made ready first, then started by a word on their
standard input, so that no import is timed. Each measurement has a namespace of its own; what it leaves is removed.

On failure: a worker that ends before its time, messages that are not done within minutes and jobs that were lost raise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis
from dramatiq.broker import Broker

from fleet.broker import keys
from fleet.workers.rooms import Rooms
from tests.benchmarks import huey_peer
from tests.benchmarks.jobs import QUEUE, broker_of, declare

if TYPE_CHECKING:
    from tests.benchmarks.contest import Contender

ROOT = Path(__file__).parents[2]
_LONGEST_WAIT = 180.0


@dataclass
class Worker:
    """A worker process that waits for its word."""

    process: subprocess.Popen[str]

    def say(self, word: str) -> None:
        """`go` starts it, `cpu` asks for its CPU seconds, `stop` stops it."""
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

    def cpu(self) -> float:
        """Its CPU seconds since `go`."""
        self.say("cpu")
        return float(self.read())

    def stop(self) -> dict[str, Any]:
        """Stop it: its latencies in ms, CPU seconds since `go`, jobs done, and how many warnings it logged."""
        self.say("stop")
        said: dict[str, Any] = self.read()
        self.process.wait(30)
        return said


@dataclass
class Stage:
    """A server, and a namespace for one measurement; `own_server` if it was started for this run.

    `database_url` is a PostgreSQL, where a claim wants one.
    """

    redis_url: str
    own_server: bool
    database_url: str = ""
    namespace: str = field(default_factory=lambda: f"bench-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.client = redis.Redis.from_url(self.redis_url)

    def broker(self, contender: Contender, **options: Any) -> Broker:
        """A broker for a producer in this process."""
        return broker_of(contender.kind, self.redis_url, self.namespace, whole=contender.whole, **options)

    def sender(self, contender: Contender, name: str) -> Callable[..., object]:
        """What sends one job of this name, connected."""
        self.client.ping()
        if contender.kind == "huey":
            return huey_peer.task(huey_peer.made(self.redis_url, self.namespace), name)
        return declare(self.broker(contender), name).send

    @contextmanager
    def workers(
        self, contender: Contender, *, processes: int = 1, threads: int = 8, queues: int = 1
    ) -> Iterator[list[Worker]]:
        """Worker processes that are ready; they are killed at the end of the block if they still run."""
        asked = {"kind": contender.kind, "url": self.redis_url, "namespace": self.namespace}
        more = {"threads": threads, "queues": queues, "connections": contender.connections, "whole": contender.whole}
        arguments = json.dumps({**asked, **more})
        environment = {**os.environ, "dramatiq_queue_prefetch": str(contender.prefetch)}
        rooms = Rooms() if contender.whole else None
        if rooms is not None:  # where a supervisor of ours has its workers count
            environment["PROMETHEUS_MULTIPROC_DIR"] = str(rooms.metrics)
        command = [sys.executable, "-m", "tests.benchmarks.worker", arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started = [Worker(subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)) for _ in range(processes)]
        try:
            for worker in started:
                worker.read()
            yield started
        finally:
            for worker in started:
                worker.process.kill()
                worker.process.wait()
            if rooms is not None:
                rooms.remove()

    def wait_until_empty(self, contender: Contender) -> None:
        """Until every message that was sent has been acknowledged; of huey's, which never are, until it was fetched."""
        bodies = keys.bodies(self.namespace, QUEUE)
        left: Callable[[], int] = lambda: int(self.client.hlen(bodies))  # noqa: E731
        if contender.kind == "huey":
            left = huey_peer.made(self.redis_url, self.namespace).pending_count
        ends = time.monotonic() + _LONGEST_WAIT
        while left():
            if time.monotonic() > ends:
                raise RuntimeError(f"{contender.label}: {left()} messages are not done after {_LONGEST_WAIT:g} s.")
            time.sleep(0.005)

    @contextmanager
    def one_cpu(self) -> Iterator[None]:
        """This thread and the server share one CPU within the block. The server must be our own."""
        server = int(self.client.info("server")["process_id"])
        threads = [0, *(int(thread.name) for thread in Path(f"/proc/{server}/task").iterdir())]
        before = os.sched_getaffinity(0)
        try:
            for thread in threads:
                os.sched_setaffinity(thread, {min(before)})
            yield
        finally:
            for thread in threads:
                os.sched_setaffinity(thread, before)

    def clear(self) -> None:
        """Remove what the last measurement left; the next has another namespace, whether that succeeds or not."""
        last, self.namespace = self.namespace, f"bench-{uuid.uuid4().hex[:8]}"
        for key in self.client.scan_iter(f"{last}:*", count=1000):
            self.client.delete(key)
        while self.client.info("memory")["lazyfree_pending_objects"]:
            time.sleep(0.01)  # what is freed later would be in the next measurement's memory and processor time


def require_done(said: list[dict[str, Any]], jobs: int) -> None:
    """Raise if fewer jobs were done than sent: a rate of lost jobs says nothing."""
    done = sum(one["done"] for one in said)
    if done < jobs:
        raise RuntimeError(f"{done} of {jobs} jobs were done.")
