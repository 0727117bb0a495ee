"""A worker in a process of its own, ours or stock's: `python -m tests.broker.process ours|stock URL NAMESPACE THREADS`.

Its one actor, `wait_for_release(name)`, notes each run under `<namespace>:runs:<name>` and works until the test sets
`<namespace>:release:<name>:<run>`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Retries

from fleet.broker import FleetBroker
from fleet.workers.worker import FleetWorker
from tests.broker.station import LOST_AFTER, QUEUE
from tests.environment import child_path

ROOT = Path(__file__).parent.parent.parent


class Jobs:
    """What a test sees of the runs of `wait_for_release`, and how it lets one end."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    def runs(self, name: str) -> int:
        return int(self._client.get(f"{self._namespace}:runs:{name}") or 0)

    def ended(self, name: str) -> int:
        return int(self._client.get(f"{self._namespace}:ended:{name}") or 0)

    def release(self, name: str, run: int) -> None:
        self._client.set(f"{self._namespace}:release:{name}:{run}", 1)

    def work(self, name: str) -> None:
        """The actor's body."""
        run = self._client.incr(f"{self._namespace}:runs:{name}")
        while not self._client.get(f"{self._namespace}:release:{name}:{run}"):
            threading.Event().wait(0.02)
        self._client.incr(f"{self._namespace}:ended:{name}")


def declare(broker: dramatiq.Broker, jobs: Jobs) -> dramatiq.Actor[Any, Any]:
    return dramatiq.actor(jobs.work, broker=broker, queue_name=QUEUE, actor_name="wait_for_release")


@contextmanager
def process(kind: str, url: str, namespace: str, threads: int = 1) -> Iterator[subprocess.Popen[bytes]]:
    """The process, once it works; killed at the end of the block if it still lives."""
    command = [sys.executable, "-m", "tests.broker.process", kind, url, namespace, str(threads)]
    started = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": child_path(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert started.stdout is not None
    try:
        assert started.stdout.readline() == b"ready\n"
        yield started
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


def main(kind: str, url: str, namespace: str, threads: int) -> None:
    jobs = Jobs(redis.Redis.from_url(url), namespace)
    worker: dramatiq.Worker
    if kind == "ours":
        broker: dramatiq.Broker = FleetBroker(url=url, namespace=namespace, middleware=[Retries()])  # type: ignore[no-untyped-call]
        declare(broker, jobs)
        worker = FleetWorker(broker, worker_threads=threads, worker_timeout=50, lost_after=LOST_AFTER)  # type: ignore[arg-type]
    else:
        broker = RedisBroker(url=url, namespace=namespace, middleware=[Retries()], heartbeat_timeout=1_000)  # type: ignore[no-untyped-call]
        declare(broker, jobs)
        worker = dramatiq.Worker(broker, worker_threads=threads, worker_timeout=50)
    worker.start()
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
