"""Starts a lane's children, and keeps the places that wait for one: after a young death, or a start that was refused.

The machine refuses a start when it has no process, memory or descriptor to give, or no room for a board. The place then
tries again after 1 s, then ever later up to 30 s, and nothing half-made is left; the children that live go on.

Not guaranteed: a child by any time. `/readyz` says while none serves that places wait.
"""

from __future__ import annotations

from pathlib import Path

from fleet import metrics
from fleet.clock import clock
from fleet.declarations import Lane
from fleet.logs import get_logger
from fleet.workers.process import Child, pause_after
from fleet.workers.rooms import Rooms

log = get_logger(__name__)


class Restarts:
    """Of one lane; the supervisor's loop alone calls it. Its length is how many places wait."""

    def __init__(self, root: Path, lane: Lane, rooms: Rooms) -> None:
        self._root, self._lane, self._rooms = root, lane, rooms
        self._waiting: list[tuple[float, int]] = []  # instant, and starts in a row that came to nothing

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self, in_vain: int = 0) -> list[Child]:
        """One child now, after so many starts in vain; none if the machine refuses it, whose place then waits."""
        rooms = self._rooms
        try:
            child = Child(self._root, self._lane, rooms.boards, str(rooms.metrics), young_deaths=in_vain)
        except OSError as error:
            pause = self.later(in_vain + 1)
            log.error("worker_not_started", lane=self._lane.name, what="child", error=str(error), restart_in=pause)
            return []
        metrics.worker_started(self._lane.name)
        return [child]

    def later(self, in_vain: int) -> float:
        """Have a child started after the pause that so many starts in vain make; returns it, in seconds."""
        pause = pause_after(in_vain)
        self._waiting.append((clock.monotonic() + pause, in_vain))
        return pause

    def due(self, now: float) -> list[Child]:
        """Start a child for each place whose pause is over."""
        due = [in_vain for at, in_vain in self._waiting if at <= now]
        self._waiting = [place for place in self._waiting if place[0] > now]
        return [child for in_vain in due for child in self.start(in_vain)]
