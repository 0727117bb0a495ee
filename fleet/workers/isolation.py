"""How many processes run suspects now: each one message at a time, beside fresh work.

A suspect is a message that a process died in, or that was lost with its worker three times. It runs with nothing else in
its process; if that dies too it is condemned, and however else it ends it is none any more. Why as many run at once as
they do: `docs/decisions/0005`.
"""

from __future__ import annotations

from fleet.declarations import Lane
from fleet.workers.process import Child

_MOST_AT_ONCE = 8
_PAUSE_SECONDS = 5.0


class Isolation:
    """Of one lane. `waiting` is told by the thread that looks into Redis."""

    def __init__(self, lane: Lane) -> None:
        self._most = min(max(lane.processes, lane.threads), _MOST_AT_ONCE)
        self._waiting = 0
        self._not_before = 0.0

    def waiting(self, count: int) -> None:
        """So many suspects wait."""
        self._waiting = count

    def wanted(self, running: int, now: float) -> int:
        """How many processes to start now."""
        if now < self._not_before:
            return 0
        wanted = max(0, min(self._waiting, self._most - running))
        self._waiting -= wanted  # until the next look
        return wanted

    def ended(self, child: Child, now: float) -> None:
        """One that could not even begin (its code does not import) is not started again at once."""
        if child.process.returncode and not child.began:
            self._not_before = now + _PAUSE_SECONDS
