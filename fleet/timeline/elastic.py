"""Elastic work in a timeline: its windows, and what it was allowed when. Pure.

A decision is said anew every ten minutes, changed or not, and is a lease: where none was said for longer, nobody
decided, and the cron slot's level held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from fleet.allowance import LEASE, Decision
from fleet.declarations import Entry
from fleet.timeline.model import Night, Segment, Step
from fleet.window import Window, elastic_of, window

STANDS = timedelta(minutes=11) + LEASE  # night time after which a decision that was not said again has lapsed
_LAPSED, _NOBODY = "lapsed", "nobody decided, so the cron slot's level held"


def windows(entry: Entry, night: Night) -> Iterator[Window]:
    """Each window of an elastic entry that touches a night."""
    at = night.begins
    while (of_night := window(entry, at)).opens < night.ends:
        if of_night.opens < of_night.deadline and of_night.closes > night.begins:
            yield of_night
        at = of_night.closes


def steps(entry: Entry, decisions: Sequence[Decision], night: Night, now: datetime) -> tuple[Step, ...]:
    """The allowance over time until now: one step from one change of places or reason to the next."""
    pieces = list(_decided(decisions, now))
    for of_night in windows(entry, night):
        pieces += _undecided(entry, of_night, pieces, min(now, of_night.closes))
    found: list[Step] = []
    for piece in sorted(pieces, key=lambda piece: piece.begins):
        begins, ends = max(piece.begins, night.begins), min(piece.ends, night.ends)
        last = found[-1] if found else None
        if begins >= ends:
            continue
        if last is not None and (last.places, last.reason, last.ends) == (piece.places, piece.reason, begins):
            found[-1] = Step(last.begins, ends, last.places, last.reason, last.text)
        else:
            found.append(Step(begins, ends, piece.places, piece.reason, piece.text))
    return tuple(found)


def _decided(decisions: Sequence[Decision], now: datetime) -> Iterator[Step]:
    """Each decision until the next one, until it lapsed, or until now."""
    for number, one in enumerate(decisions):
        following = decisions[number + 1].at if number + 1 < len(decisions) else now
        ends = min(following, one.at + STANDS, now)
        if one.at < ends and one.reason != "closed":
            yield Step(one.at, ends, one.places, one.reason, one.text)


def _undecided(entry: Entry, of_night: Window, decided: Sequence[Step], until: datetime) -> Iterator[Step]:
    """Where nobody decided within a window until an instant: the cron slot's level."""
    cap = elastic_of(entry).cap
    edges = {of_night.opens, of_night.slot, of_night.day, until}
    edges |= {edge for step in decided for edge in (step.begins, step.ends)}
    inside = sorted(edge for edge in edges if of_night.opens <= edge <= until)
    for begins, ends in pairwise(inside):
        if not any(step.begins <= begins < step.ends for step in decided):
            yield Step(begins, ends, of_night.level(cap, begins), _LAPSED, _NOBODY)


def released(allowed: Sequence[Step]) -> Iterator[Segment]:
    """Where the allowance held elastic work and where it let it go on."""
    for step in allowed:
        if step.places:
            yield Segment("released", step.begins, step.ends, f"{step.places} allowed, {step.reason}")
        else:
            yield Segment("held", step.begins, step.ends, f"none allowed, {step.reason}")
