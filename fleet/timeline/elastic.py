"""Elastic work in a timeline: its windows, and what it was allowed when. Pure.

A decision is said anew every ten minutes, changed or not, and is a lease: where none followed for longer, it is shown
for as long as its lease, and then the cron slot's level. What a person did stands among the decisions, and is of epoch
0: a hold stands until its end whoever decides, and with the balancer off the level holds until the next decision. Once
it is on again, or a hold is released, somebody decides within a lease's time, or nobody is there who does. How long a
pause stands is the ledger's to say.

Not guaranteed: when somebody who decided was gone, where none followed; the lease may have been renewed for ten minutes
more. A gap that a decision ended before the next was due is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from fleet.allowance import LEASE, Decision
from fleet.declarations import Entry
from fleet.timeline.model import Night, Segment, Step
from fleet.window import Window, elastic_of, window

STANDS = timedelta(minutes=11) + LEASE  # night time within which a decision that was renewed is followed by one
_LAPSED, _BY_HAND = "lapsed", "by hand"
_NOBODY = "nobody decided, so the cron slot's level held"
_NO_MORE = "no decision followed: the lease was renewed for ten minutes at most, then the cron slot's level held"


def windows(entry: Entry, night: Night) -> Iterator[Window]:
    """Each window of an elastic entry that touches a night."""
    at = night.begins
    while (of_night := window(entry, at)).opens < night.ends:
        if of_night.opens < of_night.deadline and of_night.closes > night.begins:
            yield of_night
        at = of_night.closes


def steps(
    entry: Entry,
    decisions: Sequence[Decision],
    night: Night,
    now: datetime,
    *,
    leased: bool = False,
    paused: Sequence[Segment] = (),
) -> tuple[Step, ...]:
    """The allowance over time until now: one step from one change of places or reason to the next.

    Decisions are in order of time; `leased` if a lease stands now; `paused` is where a person had it paused.
    """
    pieces = list(_decided(decisions, now, leased))
    for of_night in windows(entry, night):
        pieces += _undecided(entry, of_night, pieces, decisions, paused, min(now, of_night.closes))
    found: list[Step] = []
    for piece in sorted(pieces, key=lambda piece: piece.begins):
        begins, ends = max(piece.begins, night.begins), min(piece.ends, night.ends)
        last = found[-1] if found else None
        if begins >= ends or piece.reason == "closed":
            continue
        if last is not None and last.ends == begins and _same(last, piece):
            found[-1] = Step(last.begins, ends, last.places, last.reason, last.text)
        else:
            found.append(Step(begins, ends, piece.places, piece.reason, piece.text))
    return tuple(found)


def _same(last: Step, piece: Step) -> bool:
    if (last.places, last.reason) != (piece.places, piece.reason):
        return False
    return piece.reason not in (_BY_HAND, "held") or last.text == piece.text


def _decided(decisions: Sequence[Decision], now: datetime, leased: bool) -> Iterator[Step]:
    """Each decision until the next one, until it lapsed, or until now."""
    for number, one in enumerate(decisions):
        last = number + 1 == len(decisions)
        following = now if last else decisions[number + 1].at
        ends = min(following, _lasts(one, following, leased if last else None), now)
        if one.at < ends and not _leaves_level(one):
            yield Step(one.at, ends, one.places, one.reason, one.text)


def _lasts(one: Decision, following: datetime, leased: bool | None) -> datetime:
    """Until when it stood at the latest; `leased` is None where another followed."""
    if one.endless:
        return following
    if one.until is None:
        again = following <= one.at + STANDS if leased is None else leased
        return one.at + (STANDS if again else LEASE)
    behind = one.epoch > 0 and leased is not False and following <= one.until + LEASE
    return following if behind else one.until  # the lease of a hold that ended stands until somebody decides again


def _undecided(
    entry: Entry,
    of_night: Window,
    decided: Sequence[Step],
    decisions: Sequence[Decision],
    paused: Sequence[Segment],
    until: datetime,
) -> Iterator[Step]:
    """Where nobody decided within a window until an instant: the cron slot's level, and none where it was paused."""
    cap = elastic_of(entry).cap
    edges = {of_night.opens, of_night.slot, of_night.day, until} | {one.at for one in decisions}
    edges |= {one.at + LEASE for one in decisions if _leaves_level(one)}
    edges |= {edge for step in decided for edge in (step.begins, step.ends)}
    edges |= {edge for one in paused for edge in (one.begins, one.ends)}
    inside = sorted(edge for edge in edges if of_night.opens <= edge <= until)
    for begins, ends in pairwise(inside):
        if any(step.begins <= begins < step.ends for step in decided):
            continue
        stopped = [one for one in paused if one.begins <= begins < one.ends]
        if stopped:
            yield Step(begins, ends, 0, "paused", stopped[-1].note)
        else:
            yield Step(begins, ends, of_night.level(cap, begins), *_why(decisions, begins))


def _why(decisions: Sequence[Decision], at: datetime) -> tuple[str, str]:
    """Why the cron slot's level held: the balancer was off, a person's act was new, or who decided did so no more."""
    before = [one for one in decisions if one.at <= at]
    switched = [one for one in before if one.epoch or "off" in one.numbers]  # a hold and its release switch nothing
    if switched and switched[-1].numbers.get("off"):
        return _BY_HAND, switched[-1].text
    others = [one for one in before if one.epoch or one.reason not in ("held", "paused")]
    last = others[-1] if others else None
    if last is None:
        return _LAPSED, _NOBODY
    if _leaves_level(last):
        return (_BY_HAND, last.text) if at < last.at + LEASE else (_LAPSED, _NOBODY)
    return _LAPSED, _NO_MORE if at < last.at + STANDS else _NOBODY


def _leaves_level(one: Decision) -> bool:
    """Whether it is a person's act that left the cron slot's level, by the clock, or a pause, which the ledger ends."""
    return one.epoch == 0 and ("level" in one.numbers or one.reason == "paused")


def released(allowed: Sequence[Step]) -> Iterator[Segment]:
    """Where the allowance held elastic work and where it let it go on."""
    for step in allowed:
        if step.places:
            yield Segment("released", step.begins, step.ends, f"{step.places} allowed, {step.reason}")
        else:
            yield Segment("held", step.begins, step.ends, f"none allowed, {step.reason}")
