"""Elastic work in a timeline: its windows, and what it was allowed when. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import zip_longest

from fleet.allowance import Decision
from fleet.declarations import Entry
from fleet.timeline.model import Night, Segment, Step
from fleet.window import window


def windows(entry: Entry, night: Night) -> Iterator[tuple[datetime, datetime]]:
    """From opening to deadline, each window of an elastic entry that touches a night."""
    at = night.begins
    while (of_night := window(entry, at)).opens < night.ends:
        if of_night.opens < of_night.deadline and of_night.deadline > night.begins:
            yield of_night.opens, of_night.deadline
        at = of_night.closes


def steps(decisions: Sequence[Decision], night: Night, now: datetime | None) -> tuple[Step, ...]:
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


def released(decisions: Sequence[Decision], night: Night, now: datetime | None) -> Iterator[Segment]:
    """Where the allowance held elastic work and where it let it go on."""
    for step in steps(decisions, night, now) if now is not None else ():
        if step.places:
            yield Segment("released", step.begins, step.ends, f"{step.places} allowed, {step.reason}: {step.text}")
        elif step.reason != "closed":
            yield Segment("held", step.begins, step.ends, f"none allowed, {step.reason}: {step.text}")
