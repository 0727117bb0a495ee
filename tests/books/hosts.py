"""Hosts that serve a lane of the bookkeeping, as real processes: a supervisor each, with its children."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import psutil

from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


class Host:
    """`fleet work LANE`; it serves once `until_ready` has returned."""

    def __init__(self, lane: str, log: Path, **environment: str) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fleet", "--app", str(ROOT), "work", lane],
                env={**os.environ, "FLEET_LOG_FORMAT": "json", **environment},
                cwd=ROOT,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def until_ready(self) -> None:
        wait_until(lambda: self.logged("worker_ready") or self.process.poll() is not None, 60)
        assert self.process.poll() is None, self._log.read_text()[-2000:]

    def logged(self, event: str) -> list[str]:
        return [line for line in self._log.read_text().splitlines() if re.search(rf"\b{event}\b", line)]

    def children(self) -> list[int]:
        """The lane's worker processes."""
        found = []
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):
                if "fleet.workers.child" in child.cmdline():
                    found.append(child.pid)
        return found

    def stand_still(self) -> None:
        """As when its machine is paused: the supervisor first, so that it sees nothing of the others' stop."""
        self._stopped = [self.process.pid, *self.children()]
        for pid in self._stopped:
            os.kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        for pid in reversed(self._stopped):
            os.kill(pid, signal.SIGCONT)

    def counted(self, metric: str) -> float:
        """A sample that the lane serves; 0 before the first."""
        (started,) = self.logged("lane_started")
        address = re.search(r'"metrics": "([^"]+)"', started)
        assert address, started
        with urlopen(address[1], timeout=5) as page:
            served = page.read().decode()
        found = re.search(rf"^{re.escape(metric)} ([0-9.e+]+)$", served, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def end(self) -> None:
        """At once: what it holds goes back unfinished."""
        for one in [*psutil.Process(self.process.pid).children(recursive=True), self.process]:
            one.send_signal(signal.SIGCONT)
        while self.process.poll() is None:
            self.process.terminate()  # the second is heard as "now"
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)


@contextmanager
def hosts(folder: Path, *lanes: str, **environment: str) -> Iterator[list[Host]]:
    """A host of each of these lanes, started at once, when all serve."""
    started: list[Host] = []
    try:
        for number, lane in enumerate(lanes):
            started.append(Host(lane, folder / f"host-{number}.log", **environment))
        for host in started:
            host.until_ready()
        yield started
    finally:
        for host in started:
            host.end()
