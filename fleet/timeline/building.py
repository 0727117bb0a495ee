"""Builds a night's timeline from what was declared and what is on record. Pure: reads no clock and no server.

Not guaranteed: more than the record holds. A message whose run nobody wrote down shows as one that waits until its
window is over, and says so. Slots later than the last verdict and earlier than now have none yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice, takewhile

from fleet.allowance import Decision
from fleet.by_hand import Pause
from fleet.declarations import Entry
from fleet.entry_runs import Run
from fleet.ledger import LedgerLine
from fleet.outage import count_between
from fleet.overlaps import HEAVY, Expected, Stretch, overlaps
from fleet.slots import offset, slots_between
from fleet.timeline.elastic import released, steps, windows
from fleet.timeline.model import Load, Night, Often, Row, Segment, Step, Timeline, Track
from fleet.timeline.painting import joined, painted

OFTEN = 20  # slots a night, from which on they are counted and not drawn
_NEAR = timedelta(minutes=5)  # runs with less between them are drawn as one: less than three pixels of a wide screen
_MOMENT = timedelta(minutes=1)  # how wide a slot is drawn that came and went
_TICK = timedelta(microseconds=1)
_SHOWN_MOST = 200  # slots of an entry that is drawn


@dataclass(frozen=True)
class Known:
    """An entry as it was declared: its lane, whether that needs processors, and how long its run should take."""

    entry: Entry
    lane: str
    on_cpu: bool
    expected: Expected


@dataclass(frozen=True)
class Recorded:
    """What is on record of a night, by entry; `loads` by lane. Runs are `settled`, all else as it was read.

    `leased` are the entries of which a lease stands now.
    """

    ledger: Mapping[str, Sequence[LedgerLine]] = field(default_factory=dict)
    runs: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    decisions: Mapping[str, Sequence[Decision]] = field(default_factory=dict)
    pauses: Mapping[str, Pause] = field(default_factory=dict)
    loads: Mapping[str, Sequence[Load]] = field(default_factory=dict)
    leased: Collection[str] = ()


def timeline(known: Iterable[Known], recorded: Recorded, night: Night, now: datetime | None) -> Timeline:
    """A night as it went until now, and as it is to go on; without a now as it is planned.

    Lanes in the order of their loads, then of the entries.
    """
    tracks: dict[str, list[Track]] = {lane: [] for lane in recorded.loads}
    often: dict[str, list[Often]] = {}
    stretches: list[Stretch] = []
    for one in known:
        tracks.setdefault(one.lane, [])
        slots = count_between(one.entry, night.begins - _TICK, night.ends - _TICK)
        counted = slots >= OFTEN and one.entry.elastic is None
        segments = list(_segments(one, recorded, night, now, counted))
        if counted:
            often.setdefault(one.lane, []).append(_counted(one, segments, night, slots))
            segments = [segment for segment in segments if segment.bad or segment.kind != "ran" or _long(segment)]
        seen = painted(segments, night)
        if one.entry.elastic is None:
            stretches += _stretches(one, seen)
        if seen:
            tracks[one.lane].append(_track(one, seen, recorded, night, now))
    rows = tuple(
        Row(
            lane,
            tuple(sorted(of_lane, key=lambda track: track.segments[0].begins)),
            tuple(often.get(lane, ())),
            tuple(load for load in recorded.loads.get(lane, ()) if night.begins <= load.at < night.ends),
        )
        for lane, of_lane in tracks.items()
    )
    return Timeline(night, now, rows, tuple(overlaps(stretches)))


def _track(one: Known, seen: tuple[Segment, ...], recorded: Recorded, night: Night, now: datetime | None) -> Track:
    cap = one.entry.elastic.cap if one.entry.elastic is not None else 0
    allowed = _allowed(one, recorded, night, now)
    return Track(one.entry.name, seen, allowed, cap)


def _counted(one: Known, segments: Sequence[Segment], night: Night, slots: int) -> Often:
    within = [segment for segment in segments if night.begins <= segment.begins < night.ends]
    ran = sum(segment.count for segment in within if segment.kind == "ran")
    return Often(one.entry.name, slots, ran, sum(segment.count for segment in within if segment.bad))


def _long(segment: Segment) -> bool:
    return segment.count == 1 and segment.ends - segment.begins >= HEAVY


def _stretches(one: Known, seen: Iterable[Segment]) -> Iterator[Stretch]:
    for segment in seen:
        if segment.kind in ("ran", "scheduled"):
            yield Stretch(one.entry.name, one.lane, one.on_cpu, segment.begins, segment.ends)


def _segments(one: Known, recorded: Recorded, night: Night, now: datetime | None, counted: bool) -> Iterator[Segment]:
    name, runs = one.entry.name, recorded.runs.get(one.entry.name, ())
    lines = recorded.ledger.get(name, ()) if now is not None else ()
    verdicts = [line for line in lines if line.judges]
    if now is not None:
        yield from _ran(runs, now, _NEAR if counted or one.entry.elastic is not None else None)
        yield from _judged(one, verdicts, runs, now, counted)
    yield from _paused(lines, recorded.pauses.get(name), night)
    if one.entry.elastic is not None:
        yield from released(_allowed(one, recorded, night, now))
        for window in windows(one.entry, night):
            yield Segment("scheduled", max(window.opens, now or window.opens), window.deadline, "its window")
    elif not counted:
        yield from _to_come(one, verdicts[-1].last if verdicts else None, night, now)


def _allowed(one: Known, recorded: Recorded, night: Night, now: datetime | None) -> tuple[Step, ...]:
    if one.entry.elastic is None or now is None:
        return ()
    name = one.entry.name
    paused = list(_paused(recorded.ledger.get(name, ()), recorded.pauses.get(name), night))
    decisions, leased = recorded.decisions.get(name, ()), name in recorded.leased
    return steps(one.entry, decisions, night, now, leased=leased, paused=paused)


def _ran(runs: Sequence[Run], now: datetime, join: timedelta | None) -> Iterable[Segment]:
    segments = []
    for run in runs:
        if run.outcome not in ("expired", "discarded", "skipped"):
            how = "a chunk" if run.chain is not None else "sent by hand" if run.slot is None else ""
            note = ", ".join(filter(None, (f"attempt {run.attempt}", how)))
            ended = max(run.ended or now, run.started + timedelta(seconds=1))
            segments.append(Segment("ran", run.started, ended, note, run.outcome or "running"))
    return segments if join is None else joined(segments, join)


def _judged(
    one: Known, verdicts: Iterable[LedgerLine], runs: Iterable[Run], now: datetime, counted: bool
) -> Iterator[Segment]:
    of_slot: dict[datetime, list[Run]] = {}
    for run in runs:
        if run.slot is not None:
            of_slot.setdefault(run.slot, []).append(run)
    for line in verdicts:
        if line.verdict == "fired":
            yield from _fired(one, line.first, of_slot.get(line.first, []), now, counted)
        elif line.verdict == "expired":
            window = line.last + one.entry.expires
            yield Segment("expired", line.first, window, "its window passed before it was sent", count=line.count)
        elif line.verdict == "paused":
            yield Segment("paused", line.first, line.last + _MOMENT, "its slots came while it was paused")
        else:
            why = "a later slot was sent in its place" if line.verdict == "coalesced" else "the run before still went"
            yield Segment("coalesced", line.first, line.last + _MOMENT, why, count=line.count)


def _fired(one: Known, slot: datetime, runs: list[Run], now: datetime, counted: bool) -> Iterator[Segment]:
    """What became of the message of a slot beside its runs: it waited, or its window passed."""
    at, window, why = slot, slot + one.entry.expires, "waits in its queue"
    for run in sorted(runs, key=lambda run: run.started):
        if run.outcome == "expired":
            yield Segment("expired", slot, window, "its message expired in its queue")
            return
        if not counted or run.started - at > HEAVY:
            yield Segment("held", at, run.started, why)
        at = run.ended or now
        why = "waits to be tried again" if run.outcome == "retried" else "waits to run again"
    if not runs or runs[-1].outcome in ("retried", "returned", "lost"):
        unknown = "" if runs or now <= window else "; no run of it is on record"
        if not counted or min(now, window) - at > HEAVY:
            yield Segment("held", at, min(now, window), why + unknown)


def _paused(lines: Iterable[LedgerLine], pause: Pause | None, night: Night) -> Iterator[Segment]:
    since: tuple[datetime, str] | None = None
    for line in lines:
        if line.verdict == "pause":
            since = since or (line.first, f"by {line.by}: {line.because}")
        elif line.verdict == "resume" and since is not None:
            yield Segment("paused", since[0], line.first, since[1])
            since = None
    if pause is not None:
        yield Segment("paused", pause.at, night.ends, f"by {pause.by}: {pause.because}")


def _to_come(one: Known, judged: datetime | None, night: Night, now: datetime | None) -> Iterator[Segment]:
    """Slots without a verdict: those that are to come, and those that have come and that nobody judged yet."""
    after = night.begins - _TICK if now is None else max(judged or now, night.begins - _TICK)
    coming = takewhile(lambda slot: slot < night.ends, slots_between(one.entry, after, night.ends))
    how = "as it was seen" if one.expected.recorded else "as declared, at most"
    for slot in islice(coming, _SHOWN_MOST):
        due = slot + offset(one.entry)
        if now is not None and due < now:
            yield Segment("held", due, min(now, slot + one.entry.expires), "no verdict yet: does a beat lead?")
        else:
            yield Segment("scheduled", due, due + max(one.expected.takes, _MOMENT), how)
