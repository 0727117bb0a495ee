"""Whether a lane consumes, judged by what its children's boards say: the answer of `/readyz`.

A pump turns every 3 s when there is nothing to do, and far more often otherwise, so one that has not turned for 10 s
does not consume, whatever the heartbeat says. Not guaranteed: that a lane which is ready is not full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from fleet.workers.board import ChildPhase

STALE_AFTER = timedelta(seconds=10)


@dataclass(frozen=True)
class Place:
    """What one child's board says of it. Instants are `clock.monotonic()`'s; `turned_at` is 0.0 before the first."""

    pid: int
    phase: ChildPhase
    turned_at: float
    started_at: float


def readiness(places: Iterable[Place | None], now: float) -> str | None:
    """Why the lane is not ready, in a sentence; None when it is. A place that waits for a new child is None.

    One child whose pump stands still is enough; one that starts, retires or is missing is not, while another serves.
    """
    places = list(places)
    still = [sentence for place in places if place is not None and (sentence := _standing_still(place, now))]
    if still:
        return f"{'; '.join(still)}: Redis away or thread hung"
    if any(place is not None and _serves(place) for place in places):
        return None
    found = Counter(_named(place) for place in places)
    return f"no child serves yet: {', '.join(f'{count} {name}' for name, count in sorted(found.items())) or 'none'}"


def _serves(place: Place) -> bool:
    return place.phase is ChildPhase.SERVING and place.turned_at > 0


def _standing_still(place: Place, now: float) -> str | None:
    if place.phase is not ChildPhase.SERVING:
        return None
    silent = now - (place.turned_at or place.started_at)
    if silent < STALE_AFTER.total_seconds():
        return None
    if not place.turned_at:
        return f"pump of pid {place.pid} has not turned once in {silent:.0f} s"
    return f"pump of pid {place.pid} last turned {silent:.0f} s ago"


def _named(place: Place | None) -> str:
    if place is None:
        return "waiting for a restart"
    return "starting" if place.phase is ChildPhase.SERVING else place.phase.name.lower()
