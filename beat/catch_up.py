"""Which slots of an entry have come since its mark, and what is proposed for each: a pure function, no server.

The last slots, as many as the entry catches up on, are to fire; those before them are coalesced, or expired if their
window has passed. A run of slots with one verdict is one line, so that the cost depends on the lines and not on how
long the beat was away. Slots are taken in their own order: one that is not due yet holds up those behind it.

The script decides in the end: by its own clock a slot that was to fire may have expired, the entry may be paused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from beat.revisions import History, Revision
from fleet.declarations import All, Entry
from fleet.ledger import Verdict
from fleet.outage import count_between, latest_slots
from fleet.slots import next_slot

ON_TIME = timedelta(seconds=10)  # real: longer than it takes to follow a leader that was killed
_TICK = timedelta(microseconds=1)
_CERTAINLY = timedelta(milliseconds=2)  # what the script's clock may be behind ours by rounding
_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Proposal:
    """A verdict on `count` slots; `due` and `expires` are the last one's."""

    verdict: Verdict
    first: datetime
    last: datetime
    count: int
    revision: Revision
    due: datetime
    expires: datetime


@dataclass(frozen=True)
class Instant:
    """The time of a pass: `now` by the server's clock, `due` what may be fired at, a little later perhaps, and the
    rate, all of the night."""

    now: datetime
    due: datetime
    rate: float = 1.0


@dataclass(frozen=True)
class _Stretch:
    """The slots of one revision that have come: those after one instant, up to and with another."""

    revision: Revision
    entry: Entry
    after: datetime
    until: datetime
    expired_until: datetime
    window: timedelta


def proposals(history: History, mark: datetime, at: Instant) -> list[Proposal]:
    """What is proposed for every slot after the mark that is due, oldest first."""
    stretches = list(_stretches(history, mark, at))
    left = _most(history)
    fires: list[list[datetime]] = []
    for stretch in reversed(stretches):
        slots: list[datetime] = []
        begins = max(stretch.after, stretch.expired_until)
        if left and begins < stretch.until:
            slots = latest_slots(stretch.entry, begins, stretch.until, left)
        left -= len(slots)
        fires.insert(0, slots)
    found: list[Proposal] = []
    for stretch, slots in zip(stretches, fires, strict=True):
        before = slots[0] - _TICK if slots else stretch.until
        expired = min(before, stretch.expired_until)
        found += _run("expired", stretch, stretch.after, expired)
        found += _run("coalesced", stretch, max(stretch.after, expired), before)
        found += [_proposal("fired", stretch, slot, slot, 1) for slot in slots]
    return found


def next_due(history: History, mark: datetime) -> datetime | None:
    """When the first slot after the mark is due; None if there is none to come."""
    for revision, after, until in _owned(history, mark):
        slot = None if revision.entry is None else next_slot(revision.entry, after)
        if slot is not None and slot <= until:
            return slot + revision.offset
    return None


def window(entry: Entry, offset: timedelta, rate: float) -> timedelta:
    """How long after its slot an entry's message may still be sent, in night time."""
    return min(entry.expires, offset + ON_TIME * rate) if entry.catch_up == "none" else entry.expires


def _most(history: History) -> int:
    entry = history.living.entry
    return entry.catch_up.most if entry is not None and isinstance(entry.catch_up, All) else 1


def _owned(history: History, mark: datetime) -> Iterator[tuple[Revision, datetime, datetime]]:
    """Each revision with the slots that are its own: those after one instant, up to and with another."""
    revisions = history.revisions
    for number, revision in enumerate(revisions):
        until = revisions[number + 1].began if number + 1 < len(revisions) else _NEVER
        # The oldest that is kept speaks for what was before it, too.
        after = mark if number == 0 else max(mark, revision.began)
        if after < until:
            yield revision, after, until


def _stretches(history: History, mark: datetime, at: Instant) -> Iterator[_Stretch]:
    for revision, after, until in _owned(history, mark):
        entry = revision.entry
        if entry is None:
            continue
        offset = revision.offset
        due_until = min(until, at.due - offset)
        open_for = window(entry, offset, at.rate)
        if after < due_until:
            yield _Stretch(revision, entry, after, due_until, at.now - open_for - _CERTAINLY, open_for)
        if due_until < until:
            waits = next_slot(entry, max(after, due_until))
            if waits is not None and waits <= until:
                return


def _run(verdict: Verdict, stretch: _Stretch, after: datetime, until: datetime) -> list[Proposal]:
    """One line for all slots of a stretch between two instants; none if there is no slot."""
    count = count_between(stretch.entry, after, until) if after < until else 0
    if not count:
        return []
    first = next_slot(stretch.entry, after)
    (last,) = latest_slots(stretch.entry, after, until, 1)
    assert first is not None
    return [_proposal(verdict, stretch, first, last, count)]


def _proposal(verdict: Verdict, stretch: _Stretch, first: datetime, last: datetime, count: int) -> Proposal:
    revision = stretch.revision
    return Proposal(verdict, first, last, count, revision, last + revision.offset, last + stretch.window)
