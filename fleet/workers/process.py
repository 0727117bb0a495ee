"""One child process of a lane, as its supervisor sees it: the process, its board, and what was decided of it.

What a child runs is read off its board, never asked of it. Not guaranteed: that a process id which was read a moment
ago still is this child's, but while its end was not collected no other can have it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil

from fleet.broker.reaper import ALONE
from fleet.clock import clock
from fleet.declarations import Lane
from fleet.workers.board import Board, ChildPhase, Phase, Slot
from fleet.workers.forks import Fork, Spare

_STOPS_WITHIN = 0.5  # seconds from SIGSTOP until a process is seen to be stopped
_LONGEST_PAUSE = 30.0  # seconds
_GIL_FREE_WITHIN = 1.0  # seconds without a look at the retire flag, after which the GIL counts as held


class Child:
    """A started child. One that a spare forks is `alone`: it runs suspects, one at a time, until there are none.

    `condemned` are the deliveries that were ended from outside.
    """

    def __init__(
        self, root: Path, lane: Lane, folder: Path, metrics: str, *, spare: Spare | None = None, young_deaths: int = 0
    ) -> None:
        self.alone, self.young_deaths, self.started = spare is not None, young_deaths, clock.monotonic()
        first = f"{ALONE if self.alone else ''}{uuid.uuid4()}"
        self.worker_ids = [first]
        self.board = Board.create(folder / first, 1 if self.alone else lane.threads)
        self.board.worker_id = first
        try:
            self.process: subprocess.Popen[bytes] | Fork = (
                spare.fork(self.board.path) if spare else _started(root, lane, self.board.path, metrics)
            )
        except BaseException:
            self.board.remove()
            raise
        self.retired_at: float | None = None
        self.cause: str | None = None  # what it is killed for, where the supervisor does it
        self._expected = False
        self.condemned: dict[int, Slot] = {}
        self.refused_until = 0.0  # when Redis may be asked again to condemn what it refused to
        self.empty_since: float | None = None
        self.lost: list[tuple[str, str]] = []  # the `on_lost` messages of what was condemned
        self.began = False
        self._stopped_since: float | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def expected(self) -> bool:
        """Whether its death says nothing of what it ran."""
        return self._expected or (isinstance(self.process, Fork) and self.process.blameless)

    @property
    def left_in_order(self) -> bool:
        """Whether it handed back what it held; a job that ends its process may have an exit code of 0 too."""
        return self.process.returncode == 0 and self.board.phase_of_child == ChildPhase.DRAINED

    @property
    def serving(self) -> bool:
        """Whether it fetches."""
        return self.board.phase_of_child == ChildPhase.SERVING

    @property
    def answered(self) -> bool:
        """Whether it knows that it retires."""
        return self.board.phase_of_child >= ChildPhase.RETIRING

    def note_worker_id(self) -> None:
        """It takes a new id when it was reaped; all of them are to be reaped when it ends."""
        self.began = self.began or self.board.phase_of_child > ChildPhase.STARTING
        now = self.board.worker_id
        if now and now not in self.worker_ids:
            self.worker_ids.append(now)

    def overrun(self, now: float) -> list[Slot]:
        """What runs past its hard budget and was not dealt with yet."""
        return [
            slot
            for slot in self.board.read_all()
            if slot.phase != Phase.IDLE and slot.hard <= now and slot.delivery not in self.condemned
        ]

    def busy(self) -> bool:
        """Whether anything but what was condemned runs, or waits to have its end written."""
        slots = [slot for slot in self.board.read_all() if slot.phase != Phase.IDLE]
        condemned = sum(slot.delivery in self.condemned for slot in slots)
        return condemned < len(slots) or self.board.held > condemned

    def in_body(self) -> list[Slot]:
        """What a child that is gone or stopped was executing, without what was condemned."""
        slots = self.board.read_stopped()
        return [slot for slot in slots if slot.phase == Phase.BODY and slot.delivery not in self.condemned]

    def retire(self) -> None:
        """Tell it to begin no further body."""
        self.board.retire = True
        self.retired_at = clock.monotonic()

    def holds_the_gil(self, now: float) -> bool:
        """Whether nothing has looked at the retire flag for so long that no Python can run in it, or it is stopped."""
        return now - max(self.board.pulse, self.retired_at or self.started) > _GIL_FREE_WITHIN

    def is_stopped(self) -> bool:
        """Whether somebody stopped it (SIGSTOP, a debugger)."""
        try:
            return psutil.Process(self.pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        except psutil.NoSuchProcess:
            return False

    def stopped_for(self, now: float) -> float:
        """Seconds that it has been seen stopped for without a break."""
        if not self.is_stopped():
            self._stopped_since = None
        elif self._stopped_since is None:
            self._stopped_since = now
        return now - self._stopped_since if self._stopped_since is not None else 0.0

    def rss(self) -> int:
        """Its resident memory in bytes; 0 when it is gone."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.NoSuchProcess:
            return 0

    def kill_if_it_does_not_answer(self) -> bool:
        """Stop it, look, and kill it unless it has answered meanwhile; whether it was killed."""
        os.kill(self.pid, signal.SIGSTOP)
        ends = time.monotonic() + _STOPS_WITHIN
        while not self.is_stopped() and time.monotonic() < ends and self.process.poll() is None:
            time.sleep(0.005)
        if self.answered or not self.holds_the_gil(clock.monotonic()):
            os.kill(self.pid, signal.SIGCONT)
            return False
        self.kill()
        return True

    def kill(self, cause: str | None = None) -> None:
        """SIGKILL. Without a cause it is the supervisor's own doing, and no mark on what it ran."""
        self.cause, self._expected = cause, cause is None
        self.process.kill()

    def died_of(self) -> str:
        """The signal or exit code of one that ended."""
        code: int | None = self.process.returncode
        if self.cause is not None or code is None:
            return self.cause or "not ended"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _started(root: Path, lane: Lane, board: Path, metrics: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "fleet.workers.child", "--app", str(root)),
            *("--board", str(board), "--parent", str(os.getpid()), lane.name),
        ],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # a signal to the terminal's group reaches the supervisor alone
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": metrics},
    )


def pause_after(young_deaths: int) -> float:
    """Seconds before the next start: 0, 1, 2, 4 … up to the longest, after so many young deaths in a row."""
    return min(_LONGEST_PAUSE, 2.0 ** min(young_deaths - 1, 10)) if young_deaths else 0.0
