"""Judges the elastic work: what the balancer allowed, what the chunks did, and what was left at the deadline.

Red is what was doubled or lost: a question that the model answered twice for the same row, a row that somebody holds
who is gone. What is left over when the night closes waits for the next one: said apart, with how much. Decisions are
read from their stream, chunks from what the chains counted, answers from the model's own journal.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, select

from books.calendar import BERLIN
from books.models import Transaction
from books.night.logs import lines
from books.night.plan import EVENING, Plan
from books.night.report import Line, judged, said
from books.night.world import World
from fleet.allowance import Decision, decisions
from fleet.app import App, backlog_of
from fleet.broker import FleetBroker, keys
from fleet.storage import session
from fleet.window import window

SECTION = "elastic"
_SHOWN = 12
REVERSALS_MOST = 16  # a night, an entry; more is a controller that swings


class ElasticWatch:
    """Counts each backlog when its deadline has come, and when the night is over."""

    def __init__(self, app: App, broker: FleetBroker) -> None:
        self._broker = broker
        self.entries = [entry for entry in app.schedule if entry.elastic is not None]
        self.at_deadline: dict[str, int] = {}

    def look(self, now: datetime) -> None:
        for entry in self.entries:
            if entry.name not in self.at_deadline and now >= window(entry, EVENING).deadline:
                self.at_deadline[entry.name] = backlog_of(entry)()


def judge(app: App, plan: Plan, broker: FleetBroker, world: World, watch: ElasticWatch) -> Iterator[Line]:
    """Lines on each elastic entry, and on what must not happen to any row."""
    for entry in watch.entries:
        made = decisions(broker, entry.name, EVENING)
        yield said(SECTION, f"{entry.name}: allowed", _told(made) if plan.balance else "the cron minute stands")
        turned = reversals([decision.places for decision in made])
        swings = [f"{turned} of {len(made)} decisions"] if turned > REVERSALS_MOST else []
        yield judged(SECTION, f"{entry.name}: reversals", f"{REVERSALS_MOST} or fewer", turned, swings, "apart")
        measured: Any = broker.client.hgetall(keys.measures(broker.namespace, entry.name))
        chunks, rows = (int(measured.get(name, 0)) for name in (b"chunks", b"rows"))
        yield said(SECTION, f"{entry.name}: full chunks, of up to so many rows in all", f"{chunks}, {rows}")
        yield said(SECTION, f"{entry.name}: left at the deadline", watch.at_deadline.get(entry.name, "not seen"))
        left = backlog_of(entry)()
        waits = [f"{left} wait for the next night"] if left else []
        yield judged(SECTION, f"{entry.name}: left when the night closed", 0, left, waits, "apart")
    yield from _doubled(world)
    yield from judge_rows()


def reversals(places: Sequence[int]) -> int:
    """How often an allowance turned from growing to shrinking, or back."""
    steps = [after - before for before, after in itertools.pairwise(places) if after != before]
    return sum((before > 0) != (after > 0) for before, after in itertools.pairwise(steps))


def _told(made: Sequence[Decision]) -> str:
    """The changes: when, how many, why."""
    changes = [one for before, one in zip([None, *made], made, strict=False) if before is None or differs(before, one)]
    shown = [f"{one.at.astimezone(BERLIN):%H:%M} {one.places} {one.reason}" for one in changes[:_SHOWN]]
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return ", ".join(shown) + more if shown else "nothing was decided"


def differs(before: Decision, after: Decision) -> bool:
    return (before.places, before.reason) != (after.places, after.reason)


def _doubled(world: World) -> Iterator[Line]:
    whole = [call for call in lines(world.model_log) if call["status"] == 200 and not call["fault"]]
    answers = Counter((call["run"], call["step"]) for call in whole if not _of_an_agent(call))
    twice = [f"{step} of {run} {times}×" for (run, step), times in answers.items() if times > 1]
    yield judged(SECTION, "questions of a row answered twice", 0, len(twice), twice)


def _of_an_agent(call: dict[str, Any]) -> bool:
    """Turns of an agent are the desk's: their steps are stored, and judged there."""
    return str(call["run"]).startswith("agent_run:") and call["step"] != "eval"


def judge_rows() -> Iterator[Line]:
    """Lines on rows that chunks took."""
    held = Transaction.category_id.is_(None) & Transaction.sorting_until.is_not(None)
    parked = select(func.count()).select_from(Transaction).where(Transaction.unsorted_because.is_not(None))
    with session() as s:
        stuck = [f"transaction {row}" for row in s.scalars(select(Transaction.id).where(held, _not_parked()))]
        unsorted = s.scalar(parked)
    yield judged(SECTION, "rows that a chunk took and never gave back", 0, len(stuck), stuck)
    yield said(SECTION, "rows parked for a person to sort", unsorted)


def _not_parked() -> Any:
    return Transaction.unsorted_because.is_(None)
