"""By when a row that says "running" is terminal, lane by lane: promise 4 in figures, as `fleet jobs` prints it.

From the end of a job's hard budget: its process may live as long as the lane's longest hard budget, for the jobs beside
it; then `on_lost` ends the row. Where the supervisor died too, a janitor does, in the first pass after the row's lease
has lapsed: it begins within its entry's longest gap, and is over within its own hard budget. Which janitor sees to
which rows only the application knows, so the slowest counts.

Not guaranteed: the figure for a lane one of whose messages asked for a longer budget than the lane's longest (that one
counts then), nor for a row whose lease outlasts both budgets (add by how much), nor while Redis or the
database is away. A janitor passes over a row that a transaction holds locked: where an `on_lost` is cut off in its own,
the figure counts anew from that one's beginning, and where a host vanishes inside one, the server must notice first
(30 s: `fleet.storage.engine`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.app import App, effective_budget, longest_hard
from fleet.declarations import Lane
from fleet.slots import longest_period

JANITORS = "janitors"
LOST_MARGIN = timedelta(
    minutes=5
)  # beyond the lane's longest hard budget, `on_lost` runs whether its child is dead or not


@dataclass(frozen=True)
class JanitorPass:
    """The wait for a janitor's next slot, in night time, and the longest that its pass takes."""

    entry: str
    gap: timedelta
    takes: timedelta

    @property
    def total(self) -> timedelta:
        return self.gap + self.takes


@dataclass(frozen=True)
class Bound:
    """Of a lane; without a janitor in the schedule `on_lost` alone ends rows, `LOST_MARGIN` late at worst."""

    longest_hard: timedelta
    janitor: JanitorPass | None

    @property
    def after_hard(self) -> timedelta:
        """From the end of a job's hard budget until its row is terminal, at the latest."""
        return self.longest_hard + (self.janitor.total if self.janitor else LOST_MARGIN)


def bound_of(app: App, lane: Lane, now: datetime) -> Bound:
    """The bound of a lane; raises `DeclarationInvalid` for a janitor's cron that cannot be read."""
    return Bound(longest_hard(app.actors, lane), _slowest_janitor(app, now))


def _slowest_janitor(app: App, now: datetime) -> JanitorPass | None:
    passes = []
    for entry in app.schedule:
        actor = app.actors.get(entry.actor)
        if actor is None or actor.fn.__module__.partition(".")[0] != JANITORS:
            continue
        lane, gap = app.lane_of(actor.queue_name), longest_period(entry, now)
        if lane is not None and gap is not None:
            passes.append(JanitorPass(entry.name, gap, effective_budget(actor, lane).hard))
    return max(passes, key=lambda one: one.total, default=None)
