"""Whose soft budget does not fit what its jobs were seen to need: `fleet jobs --advise`.

What a job needs is the p99.9 of what it does, times how much of it one job does. That is known of two things:

- the steps that the application keeps (`fleet.steps`): of each kind the p99.9, times the most that one job took;
- for actors without enough of those, the slots of the schedule that ended, done or at their deadline: a whole job each.

A budget under that need ends jobs that would have come to their end; one of more than ten times the need holds a thread
for long when something hangs. Below `FEWEST` observations the p99.9 is no more than the worst seen, so nothing is said.

Not guaranteed: what a job does beside its steps is not in their sum. Jobs that neither have steps nor come from the
schedule are not judged; nor is a slot in the figures whose job failed, or was taken away at its hard budget.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Connection, text

from fleet import steps
from fleet.app import App, effective_budget, settings
from fleet.declarations import Budget, Entry
from fleet.storage.slots import recorded_as

if TYPE_CHECKING:
    from rich.table import Table

FEWEST = 1_000
FAR_OVER = 10
WINDOW = timedelta(days=14)  # as long as slots are kept
_SLOTS = text("""
SELECT declared.actor, count(*), percentile_disc(0.999) WITHIN GROUP (ORDER BY ended_at - started_at)
FROM slots JOIN unnest(CAST(:entries AS text[]), CAST(:actors AS text[])) AS declared(entry, actor) USING (entry)
WHERE state IN ('done', 'deadline') AND ended_at > now() - CAST(:window AS interval) GROUP BY declared.actor
""")


@dataclass(frozen=True)
class Part:
    """Of a job: so `many` of `what` at most, each within `each` (p99.9 of `count` that were seen)."""

    what: str
    count: int
    each: timedelta
    many: int

    @property
    def takes(self) -> timedelta:
        return self.each * self.many


@dataclass(frozen=True)
class Advice:
    """An actor's soft budget beside what its jobs need; `verdict` is None where it fits."""

    actor: str
    budget: Budget
    parts: tuple[Part, ...]

    @property
    def need(self) -> timedelta:
        return sum((part.takes for part in self.parts), timedelta(0))

    @property
    def verdict(self) -> Literal["under", "far over"] | None:
        if self.budget.soft < self.need:
            return "under"
        return "far over" if self.budget.soft > FAR_OVER * self.need else None


def judged(app: App, connection: Connection) -> list[Advice]:
    """Every actor that was seen often enough, by name, with what it needs.

    Raises `StepsUnreadable` for steps that lack a column, and what the database raises.
    """
    seen = {**_by_slots(connection, app.schedule), **_by_steps(connection)}
    found = []
    for name in sorted(seen.keys() & app.actors.keys()):
        actor = app.actors[name]
        lane = app.lane_of(actor.queue_name)
        budget = effective_budget(actor, lane) if lane else actor.budget
        if budget is not None:
            found.append(Advice(name, budget, seen[name]))
    return found


def _by_steps(connection: Connection) -> dict[str, tuple[Part, ...]]:
    """Actors each kind of whose steps was seen often enough."""
    by_actor: dict[str, list[Part]] = defaultdict(list)
    for found in steps.by_job(connection, WINDOW) if steps.kept(connection) else ():
        by_actor[found.actor].append(Part(f"{found.kind} steps", found.count, found.p999, found.most))
    return _often_enough(by_actor)


def _by_slots(connection: Connection, schedule: Iterable[Entry]) -> dict[str, tuple[Part, ...]]:
    entries = list(schedule)
    recorded = [recorded_as(settings().namespace, entry.name) for entry in entries]
    declared = {"entries": recorded, "actors": [entry.actor for entry in entries]}
    if not entries or connection.scalar(text("SELECT to_regclass('slots')")) is None:
        return {}
    rows = connection.execute(_SLOTS, {**declared, "window": WINDOW})
    return _often_enough({actor: [Part("whole jobs", count, p999, 1)] for actor, count, p999 in rows})


def _often_enough(seen: Mapping[str, list[Part]]) -> dict[str, tuple[Part, ...]]:
    return {actor: tuple(parts) for actor, parts in seen.items() if all(part.count >= FEWEST for part in parts)}


def advice_table(app: App, found: list[Advice]) -> Table:
    """Those whose budget does not fit, and below how many were judged at all."""
    from rich.table import Table

    from fleet.views import fine_span, span

    table = Table("actor", "soft", "its jobs need", "that is", "verdict", title="Budgets that do not fit")
    for advice in found:
        if advice.verdict is not None:
            told = " + ".join(_told(part) for part in advice.parts)
            table.add_row(
                advice.actor, span(advice.budget.soft), fine_span(advice.need), told, _VERDICTS[advice.verdict]
            )
    table.caption = (
        f"{len(found)} of {len(app.actors)} actors were judged: those of which {FEWEST:,} steps of each kind, or else "
        f"{FEWEST:,} slots, were seen within {WINDOW.days} days"
    )
    return table


_VERDICTS: dict[Any, str] = {
    "under": "under: jobs that do no wrong end as timed out; raise it, or do less a job",
    "far over": f"over {FAR_OVER} times as much: what hangs holds its thread that long; lower it",
}


def _told(part: Part) -> str:
    from fleet.views import fine_span

    return f"p99.9 {fine_span(part.each)} x {part.many} ({part.count:,} {part.what} seen)"
