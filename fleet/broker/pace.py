"""How many messages a worker process may hold: what its threads need, or what they end in 10 ms while jobs are short.

A turn costs as much for one message as for a hundred, so short jobs want many; long ones held by one process would wait
there while another idles. So the room follows the pace, and once nothing has ended for 50 ms what is over the threads'
own room goes back to the front of its queue.
"""

from __future__ import annotations

MOST = 256
_AHEAD_SECONDS = 0.010
_SLOW_AFTER_SECONDS = 0.050
_SMOOTHING = 0.2


class Pace:
    """The room of a process that holds at least `base` messages and at most `most`; equal, it is fixed."""

    def __init__(self, base: int, most: int, now: float) -> None:
        self._base, self._most = base, max(base, most)
        self._a_second = 0.0
        self._counted_at = self._ended_at = now

    def ended(self, count: int, now: float) -> None:
        """So many messages ended since the last call."""
        took = now - self._counted_at
        self._counted_at = now
        if count and took > 0:
            self._ended_at = now
            self._a_second += _SMOOTHING * (count / took - self._a_second)

    @property
    def room(self) -> int:
        """How many messages the process may hold."""
        return max(self._base, min(self._most, int(self._a_second * _AHEAD_SECONDS)))

    def slow_at(self, held: int) -> float:
        """The instant at which the jobs turn out to be long, if none ends until then; infinite without excess."""
        return self._ended_at + _SLOW_AFTER_SECONDS if held > self._base else float("inf")

    def excess(self, held: int, now: float) -> int:
        """How many of the held messages are to go back now, because nothing ended for a while."""
        if now < self.slow_at(held):
            return 0
        self._a_second = 0.0
        return held - self._base
