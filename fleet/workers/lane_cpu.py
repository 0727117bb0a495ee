"""Counts the CPU that a lane's processes used, those that ended included (`fleet.flow`).

The processes that live are asked, and the system says what all those that ended used; both together only grow. Not
guaranteed: what a process's own children use while they live.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable

import psutil

from fleet.flow import Flow, pause
from fleet.workers.process import Child


class LaneCpu:
    """One lane's; `look` is called by the supervisor's loop, as often as it likes."""

    def __init__(self, lane: str, flow: Flow) -> None:
        self._figure, self._flow = f"l:{lane}:cpu_us", flow
        self._next = 0.0
        self._counted = _ended()  # a process that made others before makes lanes in tests alone

    def look(self, children: Iterable[Child], now: float) -> None:
        """Count what was used since the last look; `now` by `clock.monotonic()`."""
        if now < self._next:
            return
        self._next = now + pause()
        used = _ended() + sum(_used(child.pid) for child in children)
        if used > self._counted:  # one that ends in between is in neither sum, and in one the next time
            self._flow.add(self._figure, count=int((used - self._counted) * 1e6))
            self._counted = used


def _ended() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def _used(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:  # it ended; the system counts it from when its end is collected
        return 0.0
    return float(times.user + times.system)
