"""Judges the beat: every slot has one verdict, at most one message, and one leader at a time.

The slots that should be come from the schedule; the verdicts from the ledger in Redis; what ran from `slots` in
PostgreSQL, which workers write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from sqlalchemy import select

from books.calendar import BERLIN
from books.night.plan import EVENING, Plan
from books.night.report import Line, judged, said
from fleet.app import App, settings
from fleet.broker import FleetBroker
from fleet.declarations import Entry
from fleet.ledger import VERDICTS, LedgerLine
from fleet.ledger import read as ledger_lines
from fleet.slots import slots_between
from fleet.storage import session
from fleet.storage.slots import entry_of
from fleet.storage.tables import LIVE_STATES, Slot, SlotState

SECTION = "slots"
FAILED, UNENDED = "slots' messages that failed", "slots' messages that did not end"
_TICK = timedelta(milliseconds=1)


def read_ledger(app: App, broker: FleetBroker) -> list[LedgerLine]:
    """The lines of all entries, in the order in which they were written."""
    lines = [line for entry in app.schedule for line in ledger_lines(broker.client, broker.namespace, entry.name)]
    return sorted(lines, key=lambda line: line.at)


def judge(app: App, plan: Plan, broker: FleetBroker, killed: str | None) -> Iterator[Line]:
    """Lines on slots, messages and leadership."""
    ledger = read_ledger(app, broker)
    yield from judge_ledger(app, plan, ledger)
    yield from _leadership(ledger, killed)


def judge_ledger(
    app: App, plan: Plan, ledger: list[LedgerLine], ended: Collection[tuple[str, datetime]] = ()
) -> Iterator[Line]:
    """Lines on slots and messages, by a ledger that was read, all at once or part by part.

    `ended` are (entry, slot) whose message is known to have ended though no row says so: a process that was killed
    while PostgreSQL was away takes the ends that it kept along.
    """
    yield from _verdicts(app, plan, ledger)
    yield from _messages(ledger, ended)


def _verdicts(app: App, plan: Plan, ledger: list[LedgerLine]) -> Iterator[Line]:
    lost: list[str] = []
    doubled: list[str] = []
    counts: Counter[str] = Counter()
    for entry in app.schedule:
        should = list(slots_between(entry, plan.begins, plan.ends))
        found = Counter(_judged_slots(entry, ledger, counts, plan))
        lost += [_name(entry.name, slot) for slot in should if not found[slot]]
        doubled += [_name(entry.name, slot) for slot, times in found.items() if times > 1]
        counts["due"] += len(should)
    yield judged(SECTION, "slots with a verdict", counts["due"], counts["due"] - len(lost), lost)
    yield judged(SECTION, "slots with two verdicts", 0, len(doubled), doubled)
    for verdict in VERDICTS:
        yield said(SECTION, f"slots {verdict}", counts[verdict])


def _judged_slots(entry: Entry, ledger: list[LedgerLine], counts: Counter[str], plan: Plan) -> Iterator[datetime]:
    for line in ledger:
        if line.entry != entry.name or not line.judges:
            continue
        for slot in slots_between(entry, line.first - _TICK, line.last):
            if plan.begins < slot <= plan.ends:
                counts[line.verdict] += 1
                yield slot


def _messages(ledger: list[LedgerLine], ended: Collection[tuple[str, datetime]] = ()) -> Iterator[Line]:
    rows = list(_rows())
    taken = {(row.entry, row.slot) for row in rows}
    fired = [(line.entry, line.last) for line in ledger if line.verdict == "fired"]
    doubled = [_name(row.entry, row.slot) for row in rows if row.fires > 1 or row.refused]
    lost = [_name(*slot) for slot in fired if slot not in taken and slot not in ended]
    unended = [_name(row.entry, row.slot) for row in rows if row.state in LIVE_STATES]
    dead = (SlotState.FAILED, SlotState.DEADLINE)
    failed = [f"{_name(row.entry, row.slot)} {row.state}" for row in rows if row.state in dead]
    expired = Counter(row.entry for row in rows if row.state == SlotState.EXPIRED and row.slot > EVENING)
    yield judged(SECTION, "slots with two messages", 0, len(doubled), doubled)
    yield judged(SECTION, "fired slots that a worker took up", len(fired), len(fired) - len(lost), lost)
    yield judged(SECTION, UNENDED, 0, len(unended), unended)
    yield judged(SECTION, FAILED, 0, len(failed), failed)
    late = [f"{entry} {times}×" for entry, times in expired.most_common()]
    yield judged(SECTION, "slots' messages that expired before they started", 0, expired.total(), late, verdict="apart")


class _Row(NamedTuple):
    entry: str
    slot: datetime
    state: str
    fires: int
    refused: int


def _rows() -> Iterator[_Row]:
    """The rows of this fleet's entries."""
    with session() as s:
        rows = s.execute(select(Slot.entry, Slot.slot, Slot.state, Slot.fires, Slot.refused)).all()
    for recorded, slot, state, fires, refused in rows:
        if (entry := entry_of(settings().namespace, recorded)) is not None:
            yield _Row(entry, slot, state, fires, refused)


def _leadership(ledger: list[LedgerLine], killed: str | None) -> Iterator[Line]:
    terms = [token for token, _ in groupby(line.token for line in ledger if line.judges)]
    again = [f"{token[:8]} came back" for token, times in Counter(terms).items() if times > 1]
    yield judged(SECTION, "replicas that fired between another's slots (two leaders at once)", 0, len(again), again)
    after = [] if killed is None or (killed in terms and terms[-1] != killed) else ["nobody led after the kill"]
    yield judged(SECTION, "leaders one after another, one killed on the way", "2 or more", len(set(terms)), after)


def _name(entry: str, slot: datetime) -> str:
    return f"{entry}@{slot.astimezone(BERLIN):%H:%M}"
