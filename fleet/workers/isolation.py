"""The processes that run suspects: each one message at a time, beside fresh work.

A suspect is a message that a process died in, or that was lost with its worker three times. It runs with nothing else
in its process; if that dies too it is condemned, and however else it ends it is none any more. The processes are forked
by the lane's spare, which starts once all of the lane's children serve. Why as many run at once as they do:
`docs/decisions/0005`. When the code is to be read anew another spare takes its place; the one before goes with its last
fork.

Not guaranteed: that suspects run while the spare cannot start or fork, which is tried again every 5 s. They wait, and
`fleet status` counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleet.declarations import Lane
from fleet.logs import get_logger
from fleet.workers.forks import Spare, SpareGone
from fleet.workers.process import Child
from fleet.workers.rooms import Rooms
from fleet.workers.verdicts import Suspects

log = get_logger(__name__)

_MOST_AT_ONCE = 16
_PAUSE_SECONDS = 5.0  # before another spare is started


class Isolation:
    """Of one lane. `waiting` is told by the thread that looks into Redis, all else by the supervisor's loop."""

    def __init__(self, root: Path, lane: Lane, rooms: Rooms) -> None:
        self._root, self._lane, self._rooms = root, lane, rooms
        self._most = min(max(lane.processes, lane.threads), _MOST_AT_ONCE)
        self._waiting = 0
        self._spare: Spare | None = None
        self._leaving: list[Spare] = []  # of the code of yesterday
        self._one_at_a_time = False
        self._not_before = 0.0

    def waiting(self, suspects: Suspects) -> None:
        """So many suspects wait, and perhaps it is to show which of them takes others down with it."""
        self._waiting, self._one_at_a_time = suspects.count, suspects.one_at_a_time

    def found(self, count: int) -> None:
        """So many more wait, since a child died."""
        self._waiting += count

    def start(self, children: Sequence[Child], now: float) -> list[Child]:
        """Start what is wanted now, and the spare that it takes; returns the new children."""
        for left in [spare for spare in self._leaving if not spare.busy]:
            self._leaving.remove(left)
            self._end(left)
        spare = self._ready_spare(children, now)
        running = sum(child.alone for child in children)
        most = 1 if self._one_at_a_time else self._most
        started: list[Child] = []
        while spare is not None and self._waiting > 0 and running + len(started) < most:
            try:
                started.append(Child(self._root, self._lane, self._rooms.boards, str(self._rooms.metrics), spare=spare))
            except SpareGone as error:
                log.error("spare_died", lane=self._lane.name, error=str(error))
                break
            except OSError as error:
                self._refused("suspect runner", error, now)
                break
            self._waiting -= 1
        return started

    def _ready_spare(self, children: Sequence[Child], now: float) -> Spare | None:
        if self._spare is not None:
            self._spare.listen()
            if not self._spare.gone:
                return self._spare if self._spare.ready and now >= self._not_before else None
            log.error("spare_died", lane=self._lane.name, pid=self._spare.process.pid, restart_in=_PAUSE_SECONDS)
            self._end(self._spare)
            self._spare, self._not_before = None, now + _PAUSE_SECONDS
        if now >= self._not_before and children and all(child.began for child in children):
            try:
                self._spare = Spare(self._root, self._lane, str(self._rooms.metrics))
            except OSError as error:
                self._refused("spare", error, now)
        return None

    def _refused(self, what: str, error: OSError, now: float) -> None:
        """The machine has no process or room to give: the suspects wait, and what runs goes on."""
        self._not_before = now + _PAUSE_SECONDS
        said = {"lane": self._lane.name, "what": what, "error": str(error)}
        log.error("worker_not_started", **said, restart_in=_PAUSE_SECONDS)

    def renew(self) -> None:
        """Fork from now on from a spare with the code of today."""
        if self._spare is not None:
            self._leaving.append(self._spare)
            self._spare = None

    def close(self) -> None:
        """End the spares, and with them what they forked."""
        self.renew()
        while self._leaving:
            self._end(self._leaving.pop())

    def _end(self, spare: Spare) -> None:
        spare.close()
        self._rooms.count_in(spare.process.pid)
