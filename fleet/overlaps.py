"""Heavy work of the schedule that goes at the same time, in one lane or on the same processors.

Work is heavy from `HEAVY` on, by how long it was seen to take, else by what was declared: its soft budget, which is the
longest it may take and not what it usually takes. A lane whose work is niced is one that needs processors: that is why
it was niced. Elastic work is left out, since it gives way by itself.

Not guaranteed: that what overlaps gets in each other's way; it is where to look. The work that a fan-out sent on is not
its entry's run, and not counted: an entry that only sends ends within seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.app import App, effective_budget
from fleet.clock import clock
from fleet.declarations import Entry, Lane
from fleet.entry_runs import Run, durations

HEAVY = timedelta(minutes=5)  # night time: shorter ones are over before anybody has looked


@dataclass(frozen=True)
class Expected:
    """How long an entry's run takes: the p95 of `count` runs that were recorded, or, without any, what was declared."""

    takes: timedelta
    count: int

    @property
    def recorded(self) -> bool:
        return self.count > 0


@dataclass(frozen=True)
class Stretch:
    """Work of an entry, from one instant to another; `on_cpu` where it needs processors."""

    entry: str
    lane: str
    on_cpu: bool
    begins: datetime
    ends: datetime


@dataclass(frozen=True)
class Overlap:
    """Two entries' heavy work at the same time: in one `lane`, or (None) on the processors."""

    first: str
    second: str
    lane: str | None
    begins: datetime
    ends: datetime

    @property
    def where(self) -> str:
        return f"in lane {self.lane}" if self.lane is not None else "on the processors"


def expected(app: App, entry: Entry, runs: Iterable[Run] = ()) -> Expected:
    """How long a run of an entry takes, in night time; raises `NotDeclared` for an entry whose actor is not there."""
    seen = durations(runs)
    if seen is not None:
        return Expected(seen.p95, seen.count)
    actor = app.actor(entry.actor)
    lane = app.lane_of(actor.queue_name)
    budget = effective_budget(actor, lane) if lane is not None else actor.budget
    return Expected(budget.soft * clock.rate if budget is not None else timedelta(0), 0)


def on_cpu(lane: Lane) -> bool:
    """Whether a lane's work needs processors, by what was declared of it."""
    return lane.nice > 0


def overlaps(stretches: Iterable[Stretch]) -> list[Overlap]:
    """Where the heavy ones of these overlap, in order of time; of two entries once for each time."""
    heavy = sorted((one for one in stretches if one.ends - one.begins >= HEAVY), key=lambda one: one.begins)
    found: list[Overlap] = []
    going: list[Stretch] = []
    for one in heavy:
        going = [other for other in going if other.ends > one.begins]
        for other in going:
            if other.entry != one.entry and (other.lane == one.lane or (other.on_cpu and one.on_cpu)):
                lane = one.lane if other.lane == one.lane else None
                found.append(Overlap(other.entry, one.entry, lane, one.begins, min(one.ends, other.ends)))
        going.append(one)
    return found
