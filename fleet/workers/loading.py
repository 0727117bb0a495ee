"""What becomes of a lane whose application's code cannot be imported: it stays, unready, and says the cause once.

A module whose import broke half-way leaves others in `sys.modules` and actors on the broker, so each further try is a
process of its own. When one succeeds this process begins anew by `exec`: it keeps its id, so that whoever started it
sees no end. A supervisor that needed only the lanes could begin without the actors, but it acts on what they declare:
the longest hard budget, `on_lost`, the catalogue.

Not guaranteed: that the address of the pages is the same afterwards, unless `FLEET_METRICS_PORT` gives one; nor that
the process survives a module which ends it (a segfault). What a restart would not mend, an error of the engine, is
raised as ever.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from fleet import app as application
from fleet import metrics, sentry
from fleet.bell import Bell
from fleet.errors import FleetError
from fleet.logs import get_logger
from fleet.settings import Settings
from fleet.workers.parent import die_with_parent
from fleet.workers.systemd import Systemd

log = get_logger(__name__)

_POLL_SECONDS = 0.1
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_MOST_OF_AN_ERROR = 500

Unloadable = (Exception, SystemExit)
"""What importing an application's code may raise besides an error of the engine."""


@dataclass(frozen=True)
class Cause:
    """Why an application cannot be loaded: which module, what was raised, and `file:line`."""

    module: str
    error: str
    at: str

    def __str__(self) -> str:
        return f"{self.module} cannot be imported: {self.error} ({self.at})"


def cause_of(error: BaseException, root: Path) -> Cause:
    """What raised, told by the innermost frame that is the application's, or by the innermost of all."""
    said = f"{type(error).__name__}: {error}"[:_MOST_OF_AN_ERROR]
    if isinstance(error, SyntaxError) and error.filename:  # no frame is in a module that could not be compiled
        return Cause(_module(Path(error.filename), root), said, f"{error.filename}:{error.lineno}")
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(frame, line) for frame, line in frames if _is_under(root, frame)]
    frame, line = (own or frames)[-1]
    importing = next((one for one, _ in reversed(own) if one.f_code.co_name == "<module>"), frame)
    return Cause(str(importing.f_globals.get("__name__")), said, f"{frame.f_code.co_filename}:{line}")


def _is_under(root: Path, frame: FrameType) -> bool:
    return root in Path(frame.f_code.co_filename).parents


def _module(path: Path, root: Path) -> str:
    inside = path.relative_to(root) if root in path.parents else Path(path.name)
    return ".".join(inside.with_suffix("").parts)


def settings_without_the_application() -> Settings:
    """The application's settings, or the engine's part of them where those cannot be imported. `SettingsInvalid`."""
    try:
        return application.settings()
    except FleetError:
        raise
    except Unloadable:
        return Settings.read()


class Loading:
    """A lane that waits for its application's code, in the foreground."""

    def __init__(self, root: Path, lane: str, settings: Settings) -> None:
        self._root, self._lane, self._settings = root.resolve(), lane, settings
        self._stop, self._now = Bell(), Bell()
        self._systemd = Systemd.of(settings)
        self._cause: Cause | None = None

    def wait(self, error: BaseException) -> None:
        """Return on SIGTERM or SIGINT; begin this process anew when the application loads; SIGHUP tries at once.

        Raises `NotDeclared` for a lane that is not among those declared, if these can be read, and `AddressUnusable`.
        """
        self._require_lane()
        sentry.begin(self._settings, process="supervisor", lane=self._lane)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, lambda *_: self._now.set())
        metrics.serve(
            self._settings.metrics_host,
            port=self._settings.metrics_port,
            ready=lambda: f"waits for the application: {self._cause}",
        )
        self._say(cause_of(error, self._root))
        pause = _FIRST_PAUSE
        while not self._pause(pause):
            cause = self._try()
            if self._stop.is_set():
                return
            if cause is None:
                self._begin_anew()
            else:
                pause = min(_LONGEST_PAUSE, pause * 2) if cause == self._cause else _FIRST_PAUSE
                self._say(cause)

    def _require_lane(self) -> None:
        try:
            declared = application.lanes(self._root)
        except FleetError:
            raise
        except Unloadable:
            return
        application.App(self._root, {}, declared, ()).lane(self._lane)

    def _on_signal(self, *_: object) -> None:
        self._stop.set()
        self._now.set()

    def _pause(self, seconds: float) -> bool:
        """Whether it is to end."""
        self._now.wait(seconds)
        self._now.clear()
        return self._stop.is_set()

    def _say(self, cause: Cause) -> None:
        """Each cause once: after half a repair there may be another."""
        if cause == self._cause:
            return
        self._cause = cause
        log.error("lane_cannot_load", lane=self._lane, **asdict(cause), tries_again_within=f"{_LONGEST_PAUSE:g}s")
        self._systemd.status(f"waits for the application: {cause}")

    def _try(self) -> Cause | None:
        """Load the application in a process of its own; None when a fresh one would get further."""
        with subprocess.Popen(
            [sys.executable, "-m", "fleet.workers.loading", "--app", str(self._root)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it would say the same each time
        ) as trial:
            while trial.poll() is None and not self._stop.wait(_POLL_SECONDS):
                pass
            trial.kill()
            said = trial.stdout.read() if trial.stdout else b""
        if trial.returncode == 0:
            return None
        if not said:
            return Cause("the application", f"the process that tried ended with code {trial.returncode}", "nowhere")
        return Cause(**json.loads(said))

    def _begin_anew(self) -> None:
        log.info("lane_loads_again", lane=self._lane)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def main(arguments: Iterable[str] | None = None) -> None:
    """One try: exit code 0 if a supervisor would get further now, were it to an error of the engine; else the cause."""
    die_with_parent(signal.SIGKILL)
    parser = argparse.ArgumentParser(prog="python -m fleet.workers.loading")
    parser.add_argument("--app", type=Path, required=True)
    root = parser.parse_args(arguments).app
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what modules print is no answer
    code = 0
    try:
        application.load(root)
        application.settings()
    except FleetError:
        pass
    except Unloadable as error:
        os.write(answer, json.dumps(asdict(cause_of(error, root))).encode())
        code = 1
    os._exit(code)  # whatever threads its modules started


if __name__ == "__main__":
    main()
