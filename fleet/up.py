"""A whole fleet as processes of this machine: every lane under its supervisor, and beat replicas.

`fleet up` and the application's night start it. Each process writes its log to a file of its own. A supervisor or beat
that ends by itself is said and not restarted: on a server that is the service manager's work, and a night's report must
see it. `FLEET_METRICS_PORT` is not passed on, since all would want the one port: each takes a free one and reports it.
Not guaranteed: anything across machines.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from fleet.app import App
from fleet.declarations import PAST_DRAIN
from fleet.logs import get_logger

log = get_logger(__name__)


class Fleet:
    """The processes of one fleet; `environment` is what they get on top of this process's."""

    def __init__(self, app: App, logs: Path, *, environment: Mapping[str, str], beats: int = 1) -> None:
        self._app, self._beats = app, beats
        self.logs = logs
        self._environment = {**os.environ, **environment}
        self._environment.pop("FLEET_METRICS_PORT", None)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def start_lanes(self) -> None:
        """Start a supervisor a lane; returns before they are ready."""
        for lane in self._app.lanes:
            self.start_lane(lane.name)

    def start_lane(self, lane: str) -> None:
        """Start the supervisor of a lane, as a service manager would for one that ended."""
        self._start(f"lane-{lane}", "work", lane)

    def start_beats(self) -> None:
        """Start the beat replicas."""
        for number in range(1, self._beats + 1):
            self._start(f"beat-{number}", "beat")

    def start_beat(self, name: str) -> None:
        """Start one more beat replica, as a service manager would for one that died."""
        self._start(name, "beat")

    def pids(self) -> dict[str, int]:
        """The processes that were started and not yet said to have ended."""
        return {name: process.pid for name, process in self._processes.items()}

    def ended(self) -> dict[str, int]:
        """The processes that ended by themselves since the last call, and their exit codes."""
        gone = {name: process.poll() for name, process in self._processes.items()}
        for name in [name for name, code in gone.items() if code is not None]:
            del self._processes[name]
        return {name: code for name, code in gone.items() if code is not None}

    def stop_beats(self) -> None:
        """End the beats, so that no further slot fires."""
        self._stop([name for name in self._processes if name.startswith("beat")])

    def stop(self) -> None:
        """End everything: the beats first, then every lane by its drain."""
        self.stop_beats()
        self._stop(list(self._processes))

    def _start(self, name: str, *command: str) -> None:
        with (self.logs / f"{name}.log").open("ab") as log_file:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "fleet", "--app", str(self._app.root), *command],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self._app.root,
                env={**self._environment, "FLEET_PARENT": str(os.getpid())},
            )

    def _stop(self, names: list[str]) -> None:
        for name in names:
            self._processes[name].terminate()
        longest = max((self._app.lane_here(lane.name).drain for lane in self._app.lanes), default=timedelta(0))
        ends = time.monotonic() + (longest + PAST_DRAIN).total_seconds()
        for name in names:
            process = self._processes.pop(name)
            try:
                process.wait(max(0.1, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.error("process_killed", process=name, pid=process.pid, cause="did not end in its drain")
                process.kill()
                process.wait()
