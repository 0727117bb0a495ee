"""A peer's processes: its module run by its own interpreter, on the run's Redis, with a namespace a measurement."""

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
from typing import Any

import redis

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
ENVIRONMENTS = ROOT / ".venv" / "peers"


@dataclass(frozen=True)
class Contender:
    """One way to do the work. `environment` is a folder under `.venv/peers`, None for this process's own.

    `processes_for` is how many processes stand for so many threads, where the library has none.
    """

    label: str
    module: str
    environment: str | None = None
    settings: dict[str, str] = field(default_factory=dict, hash=False)
    has_threads: bool = True
    has_scheduler: bool = True

    @property
    def python(self) -> str:
        return str(ENVIRONMENTS / self.environment / "bin" / "python") if self.environment else sys.executable

    @property
    def installed(self) -> bool:
        return Path(self.python).exists()


OURS = Contender("nightshift", "dramatiq_peer.py", settings={"BENCH_KIND": "ours"})
STOCK = Contender("dramatiq", "dramatiq_peer.py", settings={"BENCH_KIND": "stock"})
STOCK_256 = Contender(
    "dramatiq, prefetch 256, 512 connections",
    "dramatiq_peer.py",
    settings={"BENCH_KIND": "stock", "dramatiq_queue_prefetch": "256", "BENCH_CONNECTIONS": "512"},
)
PEERS = (
    Contender("celery", "celery_peer.py", "celery"),
    Contender("rq", "rq_peer.py", "rq", has_threads=False, has_scheduler=False),
    Contender("arq", "arq_peer.py", "arq"),
    Contender("taskiq", "taskiq_peer.py", "taskiq"),
    Contender("huey", "huey_peer_app.py", "huey", has_scheduler=False),
    Contender("saq", "saq_peer.py", "saq"),
)
CONTENDERS = (OURS, STOCK, STOCK_256, *PEERS)


class Failed(Exception):
    """Raised when a peer's process ended, or did not do its work in time."""


@dataclass
class Run:
    """One measurement of one contender; its namespace is emptied at the end."""

    contender: Contender
    url: str
    folder: Path
    namespace: str = field(default_factory=lambda: f"peers-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.client = redis.Redis.from_url(self.url)
        self._running: list[subprocess.Popen[bytes]] = []

    def environment(self, **more: str) -> dict[str, str]:
        own = {"BENCH_URL": self.url, "BENCH_NAMESPACE": self.namespace, "BENCH_FOLDER": str(self.folder)}
        return {**os.environ, **own, "PYTHONPATH": str(HERE), **self.contender.settings, **more}

    def ask(self, *arguments: object, within: float = 120.0) -> Any:
        """Run the peer's module to its end; what it printed, as JSON."""
        command = [self.contender.python, self.contender.module, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=HERE, env=self.environment(), capture_output=True, text=True, timeout=within, check=False
        )
        if done.returncode:
            raise Failed(f"{' '.join(map(str, arguments))}: {done.stderr.strip()[-300:]}")
        lines = done.stdout.strip().splitlines()
        return json.loads(lines[-1]) if lines else None

    def start(self, *arguments: object, **more: str) -> subprocess.Popen[bytes]:
        """Start the peer's module; it is killed at the end of the measurement."""
        with (self.folder / "out.log").open("ab") as log:
            process = subprocess.Popen(
                [self.contender.python, self.contender.module, *map(str, arguments)],
                cwd=HERE,
                env=self.environment(**more),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running.append(process)
        return process

    def workers(self, processes: int, threads: int, queue: str = "bench") -> list[subprocess.Popen[bytes]]:
        """Worker processes, ready: each was seen to do a job. A library without threads gets a process a thread."""
        count = processes if self.contender.has_threads else processes * min(threads, 8)
        started = [self.start("worker", threads, queue) for _ in range(count)]
        before = self.done()
        self.ask("fill", queue, "noop", 4 * count, '["number"]')
        self.until(lambda: self.done() >= before + 4 * count, 60, "workers that begin")
        return started

    def done(self) -> int:
        """How many jobs are done."""
        return int(self.client.get(f"{self.namespace}:notes:done") or 0)  # type: ignore[arg-type]

    def notes(self, what: str) -> list[str]:
        """What jobs noted."""
        found: Any = self.client.lrange(f"{self.namespace}:notes:{what}", 0, -1)
        return [one.decode() for one in found]

    def until(self, condition: Callable[[], bool], within: float, what: str) -> float:
        """Wait for it; the seconds it took."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > within:
                raise Failed(f"no {what} within {within:g} s")
            time.sleep(0.005)
        return time.monotonic() - began

    def kill(self) -> None:
        """End every process with SIGKILL, and drop the namespace."""
        for process in self._running:
            try:
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                continue
            finally:
                process.wait()
        for pattern in (f"*{self.namespace}*",):
            for key in self.client.scan_iter(pattern, count=1000):
                self.client.unlink(key)


@contextmanager
def running(contender: Contender, url: str, folder: Path) -> Iterator[Run]:
    """A measurement's `Run`, ended whatever happens."""
    run = Run(contender, url, folder)
    try:
        yield run
    finally:
        run.kill()
