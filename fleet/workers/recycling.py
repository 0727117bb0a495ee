"""Which child is replaced next, because it has grown, worked or lived enough: one of a lane at a time."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.declarations import Lane
from fleet.workers.process import Child

_LOOK_SECONDS = 0.5


class Recycling:
    """Of one lane; memory is looked at twice a second."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._asked: list[Child] = []
        self._rss: dict[int, tuple[float, int]] = {}

    def all_of(self, children: Sequence[Child]) -> None:
        """Replace each of these, one by one."""
        self._asked = [child for child in children if not child.alone]

    def over_kill_rss(self, child: Child, now: float) -> bool:
        """Whether it must be killed at once."""
        return self._lane.kill_rss is not None and self._rss_of(child, now) > self._lane.kill_rss

    def next(self, children: Sequence[Child], now: float) -> tuple[Child, str] | None:
        """The child to retire and why; None while another is being replaced."""
        self._asked = [child for child in self._asked if child in children and child.retired_at is None]
        self._rss = {child.pid: self._rss[child.pid] for child in children if child.pid in self._rss}
        serving = [child for child in children if not child.alone and child.retired_at is None]
        if len(serving) < self._lane.processes or not all(child.serving for child in serving):
            return None
        if any(child.retired_at is not None and not child.condemned and not child.alone for child in children):
            return None
        for child in serving:
            why = self._reason(child, now)
            if why is not None:
                return child, why
        return None

    def _reason(self, child: Child, now: float) -> str | None:
        lane = self._lane
        if child in self._asked:
            return "SIGHUP"
        if lane.max_jobs is not None and child.board.jobs >= lane.max_jobs:
            return f"{child.board.jobs} jobs, of {lane.max_jobs}"
        if lane.max_age is not None and now - child.started >= lane.max_age.total_seconds():
            return f"older than {lane.max_age}"
        if lane.max_rss is not None and self._rss_of(child, now) > lane.max_rss:
            return f"{self._rss_of(child, now):,} bytes of memory, over {lane.max_rss:,}"
        return None

    def _rss_of(self, child: Child, now: float) -> int:
        looked_at, rss = self._rss.get(child.pid, (0.0, 0))
        if now - looked_at >= _LOOK_SECONDS:
            rss = child.rss()
            self._rss[child.pid] = (now, rss)
        return rss
