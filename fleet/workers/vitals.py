"""What a supervisor lets others see of its lane: `/healthz`, `/readyz`, reports for `fleet status`, and systemd.

The supervisor's loop calls `look` at every turn; it takes down what the children and their boards say, and whoever asks
gets that, so that no other thread touches a board that may be closed meanwhile. Not guaranteed: anything younger than
the last look. A loop that hangs makes the process unhealthy after 10 s, and its watchdog is no longer fed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from fleet import metrics
from fleet.clock import clock
from fleet.declarations import Lane
from fleet.payloads import own_fingerprints
from fleet.settings import Settings
from fleet.workers.board import ChildPhase
from fleet.workers.presence import DRAINING, Report, report_of_child
from fleet.workers.process import Child
from fleet.workers.readiness import Place, readiness
from fleet.workers.systemd import Systemd

HANGS_AFTER = timedelta(seconds=10)
_REPORT_SECONDS = 0.5  # reading every slot at each turn would be for nobody: reports leave once a second


class Vitals:
    """One lane's; the loop's thread calls `waits_for`, `look` and nothing else does."""

    def __init__(self, lane: Lane, systemd: Systemd) -> None:
        self._lane, self._systemd = lane, systemd
        self._where: str | None = None
        self._keys: tuple[str, ...] | None = None
        self._looked_at: float | None = None
        self._reported_at = 0.0
        self._draining = False
        self._children: tuple[Report, ...] = ()
        self._places: tuple[Place | None, ...] = ()
        self._before = "the supervisor starts"

    def serve(self, settings: Settings, registry: Any) -> str:
        """Serve the pages, the registry's metrics among them; returns their address. Raises `AddressUnusable`."""
        metrics.begin_lane(self._lane.name, self._lane.queues)
        self._keys = own_fingerprints(settings)
        self._where = metrics.serve(
            settings.metrics_host, registry, port=settings.metrics_port, healthy=self.unhealthy, ready=self.unready
        )
        return self._where

    def waits_for(self, what: str) -> None:
        """The lane cannot begin yet; said until the first look."""
        self._before = f"waits for {what}"
        self._systemd.status(self._before)

    def look(self, children: Iterable[Child], *, waiting: int, now: float, draining: bool = False) -> None:
        """Take down how the lane is; `waiting` places have no child until a restart. Only boards that are open."""
        children = list(children)
        self._places = (*(_place(child) for child in children if not child.alone), *[None] * waiting)
        if now - self._reported_at >= _REPORT_SECONDS:
            self._reported_at = now
            self._children = tuple(report_of_child(self._lane.name, one.pid, one.board, now) for one in children)
        self._looked_at = now
        metrics.lane_processes(self._lane.name, self._lane.processes, self._serving())
        if draining and not self._draining:
            self._systemd.stopping(f"drains, for {self._lane.drain} at most")
        self._draining = draining
        if not draining:
            self._tell_systemd()
        self._systemd.feed(now)

    def _tell_systemd(self) -> None:
        wrong = self.unready()
        if wrong is None:
            self._systemd.ready()
        self._systemd.status(wrong or f"{self._serving()} of {self._lane.processes} children serve")

    def _serving(self) -> int:
        return sum(place is not None and place.phase is ChildPhase.SERVING for place in self._places)

    def unhealthy(self) -> str | None:
        """Why this process should be restarted; None while its loop turns, or has not begun to."""
        silent = clock.monotonic() - self._looked_at if self._looked_at is not None else 0.0
        if silent < HANGS_AFTER.total_seconds():
            return None
        return f"the supervisor's loop last turned {silent:.0f} s ago"

    def unready(self) -> str | None:
        """Why the lane takes no messages; None when it does."""
        if self._looked_at is None:
            return self._before
        if self._draining:
            return "the lane drains"
        return self.unhealthy() or readiness(self._places, clock.monotonic())

    def reports(self) -> list[Report]:
        """The supervisor's own, and one a child."""
        phase = DRAINING if self._draining else ""
        own = Report("supervisor", self._lane.name, metrics=self._where, phase=phase, payload_keys=self._keys)
        return [own, *self._children]


def _place(child: Child) -> Place:
    """One that was told to retire takes no messages, though its board may not say so yet, or never will."""
    phase = child.board.phase_of_child
    if child.retired_at is not None and phase is ChildPhase.SERVING:
        phase = ChildPhase.RETIRING
    return Place(child.pid, phase, child.board.turned_at, child.started)
