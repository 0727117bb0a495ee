"""Elastic work in a timeline: its windows, and what it was allowed when.

Windows are from opening to deadline, by the wall clock of the entry's zone on each day. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from itertools import zip_longest
from typing import Protocol
from zoneinfo import ZoneInfo

from fleet.declarations import Entry
from fleet.timeline.model import Night, Segment, Step

_OUTSIDE = "closed"  # the reason of an allowance of none outside its window


class Decided(Protocol):
    """A decision of the balancer's on an entry's allowance, as `fleet.allowance` reads it."""

    @property
    def at(self) -> datetime: ...
    @property
    def places(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def text(self) -> str: ...


def opening_hours(entry: Entry) -> tuple[time, time] | None:
    """When an entry's elastic work may begin and should be done by; None for an entry that is not elastic."""
    elastic = getattr(entry, "elastic", None)
    return None if elastic is None else elastic.window


def windows(entry: Entry, night: Night) -> Iterator[tuple[datetime, datetime]]:
    """The windows of an elastic entry that touch a night."""
    hours = opening_hours(entry)
    if hours is None:
        return
    zone, (opens, deadline) = ZoneInfo(entry.tz), hours
    day = night.begins.astimezone(zone).date() - timedelta(days=1)
    while day <= night.ends.astimezone(zone).date():
        begins = datetime.combine(day, opens, zone).astimezone(UTC)
        last = day if deadline > opens else day + timedelta(days=1)
        ends = datetime.combine(last, deadline, zone).astimezone(UTC)
        if begins < night.ends and ends > night.begins and begins < ends:
            yield begins, ends
        day += timedelta(days=1)


def steps(decisions: Sequence[Decided], night: Night, now: datetime | None) -> tuple[Step, ...]:
    """The allowance over time until now: one step from one change of places or reason to the next."""
    found: list[Step] = []
    for decision, following in zip_longest(decisions, decisions[1:]):
        begins = max(decision.at, night.begins)
        ends = min(night.ends, following.at if following is not None else now or night.ends)
        if begins >= ends:
            continue
        last = found[-1] if found else None
        if last is not None and (last.places, last.reason, last.ends) == (decision.places, decision.reason, begins):
            found[-1] = Step(last.begins, ends, last.places, last.reason, last.text)
        else:
            found.append(Step(begins, ends, decision.places, decision.reason, decision.text))
    return tuple(found)


def released(decisions: Sequence[Decided], night: Night, now: datetime | None) -> Iterator[Segment]:
    """Where the allowance held elastic work and where it let it go on."""
    for step in steps(decisions, night, now) if now is not None else ():
        if step.places:
            yield Segment("released", step.begins, step.ends, f"{step.places} allowed, {step.reason}: {step.text}")
        elif step.reason != _OUTSIDE:
            yield Segment("held", step.begins, step.ends, f"none allowed, {step.reason}: {step.text}")
