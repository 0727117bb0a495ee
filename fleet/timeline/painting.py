"""Puts what holds of an entry at the same time one above the other, so that at each instant one thing is shown.

Of two that hold at once the one shown is later in `KINDS`; of two of a kind the one that began later. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from fleet.timeline.model import KINDS, Night, Segment


def painted(segments: Iterable[Segment], night: Night) -> tuple[Segment, ...]:
    """What is seen of segments within a night: none overlaps another, in order of time."""
    within = [cut for one in segments if (cut := _cut(one, night)) is not None]
    seen: list[tuple[int, Segment]] = []
    for begins, ends, at in _pieces(within):
        last = seen[-1] if seen else None
        if last is not None and last[0] == at and last[1].ends == begins:
            seen[-1] = (at, replace(last[1], ends=ends))
        else:
            seen.append((at, replace(within[at], begins=begins, ends=ends)))
    return tuple(segment for _, segment in seen)


def joined(segments: Iterable[Segment], gap: timedelta) -> list[Segment]:
    """Segments of one kind and outcome with less than `gap` between them as one that counts them; the first's note."""
    done: list[Segment] = []
    for one in sorted(segments, key=lambda one: one.begins):
        last = done[-1] if done else None
        if last and (last.kind, last.outcome) == (one.kind, one.outcome) and one.begins - last.ends < gap:
            done[-1] = replace(last, ends=max(last.ends, one.ends), count=last.count + one.count)
        else:
            done.append(one)
    return done


def _cut(one: Segment, night: Night) -> Segment | None:
    begins, ends = max(one.begins, night.begins), min(one.ends, night.ends)
    return replace(one, begins=begins, ends=ends) if begins < ends else None


def _pieces(segments: Sequence[Segment]) -> Iterator[tuple[datetime, datetime, int]]:
    """From one boundary to the next, the number of the segment that is seen."""
    order = sorted(range(len(segments)), key=lambda at: segments[at].begins)
    boundaries = sorted({instant for one in segments for instant in (one.begins, one.ends)})
    above: list[tuple[int, float, int]] = []
    coming = iter(order)
    upcoming = next(coming, None)
    for begins, ends in pairwise(boundaries):
        while upcoming is not None and segments[upcoming].begins <= begins:
            one = segments[upcoming]
            heapq.heappush(above, (-KINDS.index(one.kind), -one.begins.timestamp(), upcoming))
            upcoming = next(coming, None)
        while above and segments[above[0][2]].ends <= begins:
            heapq.heappop(above)
        if above:
            yield begins, ends, above[0][2]
