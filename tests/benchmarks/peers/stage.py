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

import psutil
import redis

from fleet.workers.rooms import Rooms

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
ENVIRONMENTS = ROOT / ".venv" / "peers"
_BEGIN_WITHIN = 120.0


@dataclass(frozen=True)
class Contender:
    """One way to do the work. `environment` is a folder under `.venv/peers`, None for this process's own.

    `stated` says what of its settings is not the library's default, and why; it is printed beside the figures. One
    without threads gets a process a thread, eight at most. `entry_seconds` is the shortest time between two slots of an
    entry that it can have; `by_clock` says that slots are the clock's, and not counted from the last run (taskiq counts
    so, but looks at whole seconds alone). It is measured in what begins with `only`. `one_pool` says that one process
    has all queues, where others have a process each.
    """

    label: str
    module: str
    environment: str | None = None
    settings: dict[str, str] = field(default_factory=dict, hash=False)
    stated: str = ""
    has_threads: bool = True
    entry_seconds: int = 1
    by_clock: bool = True
    only: str = ""
    one_pool: bool = False

    @property
    def python(self) -> str:
        return str(ENVIRONMENTS / self.environment / "bin" / "python") if self.environment else sys.executable

    @property
    def installed(self) -> bool:
        return Path(self.python).exists()


OURS = Contender(
    "nightshift",
    "dramatiq_peer.py",
    settings={"BENCH_KIND": "ours"},
    stated="a worker process alone, without the supervisor that sees a child die: a SIGKILL is here the end of a host; "
    "Dramatiq's default middleware, as stock has, though `fleet work` always has more of its own",
)
OURS_WHOLE = Contender(
    "nightshift, its whole middleware",
    "dramatiq_peer.py",
    settings={"BENCH_KIND": "ours", "BENCH_WHOLE": "yes"},
    stated="the middleware that every worker of `fleet work` has, and a lane's budget; in the drains alone",
    only="drain",
)
STOCK = Contender(
    "dramatiq",
    "dramatiq_peer.py",
    settings={"BENCH_KIND": "stock"},
    stated="nothing: prefetch is twice the threads, 100 connections at most; one process where its command line forks",
)
STOCK_256 = Contender(
    "dramatiq, prefetch 256, 512 connections",
    "dramatiq_peer.py",
    settings={"BENCH_KIND": "stock", "dramatiq_queue_prefetch": "256", "BENCH_CONNECTIONS": "512"},
    stated="its best known: the prefetch doubles its drain, and 200 threads want more than redis-py's 100 connections",
)
STOCK_ONE_POOL = Contender(
    "dramatiq, one pool",
    "dramatiq_peer.py",
    settings={"BENCH_KIND": "stock"},
    stated="what its command line starts where no queue is named: each process has every queue",
    only="flood",
    one_pool=True,
)
PEERS = (
    Contender(
        "celery",
        "celery_peer.py",
        "celery",
        by_clock=False,
        stated="`acks_late` and `reject_on_worker_lost`, or a killed worker loses what it held; `-P threads`, as "
        "others have; no results; no gossip nor mingle, as there is nobody to talk to; its prefetch of 4 a thread",
    ),
    Contender(
        "rq",
        "rq_peer.py",
        "rq",
        has_threads=False,
        by_clock=False,
        stated="SimpleWorker, as a Worker forks for each job, which would be what is measured; a process in place of "
        "each thread, 8 at most; `result_ttl=0`; its CronScheduler, which it calls beta",
    ),
    Contender(
        "arq",
        "arq_peer.py",
        "arq",
        stated="`max_jobs` is the threads; `keep_result=0`; a poll of 10 ms in place of 0.5 s, which fetches "
        "`max_jobs` at most and would be all that is measured",
    ),
    Contender(
        "taskiq",
        "taskiq_peer.py",
        "taskiq",
        stated="RedisStreamBroker, the one that acknowledges; `idle_timeout` 10 s in place of 10 min, or what a killed "
        "worker held is out of reach here; one process; threads and tasks at once are the threads; no results",
    ),
    Contender(
        "huey",
        "huey_peer_app.py",
        "huey",
        entry_seconds=60,
        stated="thread workers; `results=False`; no periodic thread but in a scheduler, whose entries go by the minute",
    ),
    Contender(
        "saq", "saq_peer.py", "saq", stated="`concurrency` is the threads; `timeout=600` a job, as 10 s would cut some"
    ),
)
CONTENDERS = (OURS, OURS_WHOLE, STOCK, STOCK_256, STOCK_ONE_POOL, *PEERS)


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
        self._rooms = Rooms() if "BENCH_WHOLE" in self.contender.settings else None

    def environment(self, **more: str) -> dict[str, str]:
        own = {"BENCH_URL": self.url, "BENCH_NAMESPACE": self.namespace, "BENCH_FOLDER": str(self.folder)}
        if self._rooms is not None:  # where a supervisor of ours has its workers count
            own["PROMETHEUS_MULTIPROC_DIR"] = str(self._rooms.metrics)
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

    def workers(self, processes: int, threads: int, *queues: str) -> list[subprocess.Popen[bytes]]:
        """Worker processes of queues (`bench`), ready: each was seen to do a job of the first.

        A library without threads gets a process a thread.
        """
        queue, *others = queues or ("bench",)
        count = processes if self.contender.has_threads else processes * min(threads, 8)
        started = [self.start("worker", threads, queue, *others) for _ in range(count)]
        wanted, known, ends = self.done(), set(self.notes("pids")), time.monotonic() + _BEGIN_WITHIN
        while len(set(self.notes("pids")) - known) < count:  # by their own word, since one may do what is sent for all
            if time.monotonic() > ends:
                raise Failed(f"not all of {count} workers begin within {_BEGIN_WITHIN:g} s")
            self.ask("fill", queue, "hello", 4 * count, "[]")
            wanted += 4 * count
            self.until(lambda least=wanted: self.done() >= least, 60, "workers that begin")
        return started

    def family(self) -> list[psutil.Process]:
        """Every process that was started and lives, with its children."""
        found = []
        for process in self._running:
            if process.poll() is None:
                one = psutil.Process(process.pid)
                found += [one, *one.children(recursive=True)]
        return found

    def pause(self) -> None:
        """Stop them all, so that what is sent now waits."""
        for process in self.family():
            process.suspend()

    def go_on(self) -> None:
        """Let them all go on."""
        for process in self.family():
            process.resume()

    def done(self) -> int:
        """How many jobs are done."""
        found: Any = self.client.get(f"{self.namespace}:notes:done")
        return int(found or 0)

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
        if self._rooms is not None:
            self._rooms.remove()
        for key in self.client.scan_iter(f"*{self.namespace}*", count=1000):
            self.client.unlink(key)


@contextmanager
def running(contender: Contender, url: str, folder: Path) -> Iterator[Run]:
    """A measurement's `Run`, ended whatever happens."""
    run = Run(contender, url, folder)
    try:
        yield run
    finally:
        run.kill()
