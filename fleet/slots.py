"""The slots of an entry: the instants its cron or interval names.

cronsim computes cron slots, with Debian's rules on a change of clocks: a daily job fires exactly once a local day, at
the moment that passes over its time where the clocks leave it out; an expression with a star for minute or hour fires
whenever the wall clock shows it, so that hourly ones stay unbroken. Intervals are aligned to the epoch, so that every
replica computes the same slots. All instants returned are aware and in UTC.

A slot is due `offset` after it: its entry's share of `jitter`, which stays the same whoever computes it.

Not here: how many slots a long time holds, and the last of them (`fleet.outage`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from fleet.declarations import ZERO, Entry
from fleet.errors import DeclarationInvalid

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _MILLISECOND = timedelta(seconds=1), timedelta(milliseconds=1)


def slots_after(entry: Entry, after: datetime) -> Iterator[datetime]:
    """The slots strictly after an instant, in order, without end (cron that never comes again ends it).

    Raises `DeclarationInvalid` if the cron expression cannot be read.
    """
    if entry.every is not None:
        yield from _interval_slots(entry.every, after)
        return
    parsed = cron(entry, after)
    if parsed.fixup_tz is None:
        yield from _on_the_face(entry, after)
        return
    for slot in parsed:
        instant = slot.astimezone(UTC)
        if instant > after:  # cronsim, begun within the hour that autumn repeats, names the first of its two again
            yield instant


def cron(entry: Entry, start: datetime) -> CronSim:
    """cronsim, set to an instant in the entry's zone.

    Raises `DeclarationInvalid` if the cron expression cannot be read.
    """
    assert entry.cron is not None
    try:
        return CronSim(entry.cron, start.astimezone(ZoneInfo(entry.tz)))
    except CronSimError as error:
        raise DeclarationInvalid(f"Entry({entry.name!r}, cron={entry.cron!r}): {error}.") from None


def _on_the_face(entry: Entry, after: datetime) -> Iterator[datetime]:
    """The slots of an expression with a star for minute or hour: whenever the wall clock shows it.

    From one change of clocks to the next, cronsim is given the clock's face without a zone. With one it leaves slots
    out where clocks are changed by half an hour, and names one for ever where they are set back past midnight.
    """
    zone, at = ZoneInfo(entry.tz), after.astimezone(UTC)
    ahead = _ahead(zone, at)
    start = at
    while True:
        for face in CronSim(str(entry.cron), (start + ahead).replace(tzinfo=None)):
            instant = face.replace(tzinfo=UTC) - ahead
            if _ahead(zone, instant) != ahead:
                break
            yield instant
            at = instant
        else:
            return
        at = _change(zone, at, instant, ahead)
        ahead, start = _ahead(zone, at), at - _SECOND  # a slot may be in the very moment of the change


def _ahead(zone: ZoneInfo, instant: datetime) -> timedelta:
    return instant.astimezone(zone).utcoffset() or ZERO


def _change(zone: ZoneInfo, low: datetime, high: datetime, ahead: timedelta) -> datetime:
    """The first moment that is no longer so far ahead of UTC, of which one is at `high`."""
    low = low.replace(microsecond=0)
    while high - low > _SECOND:
        middle = low + (high - low) // 2 // _SECOND * _SECOND
        low, high = (middle, high) if _ahead(zone, middle) == ahead else (low, middle)
    return high


def _interval_slots(every: timedelta, after: datetime) -> Iterator[datetime]:
    number = (after - EPOCH) // every + 1
    while True:
        yield EPOCH + every * number
        number += 1


def slots_between(entry: Entry, after: datetime, until: datetime) -> Iterator[datetime]:
    """The slots after one instant, up to and with another."""
    for slot in slots_after(entry, after):
        if slot > until:
            return
        yield slot


def next_slot(entry: Entry, after: datetime) -> datetime | None:
    """The first slot strictly after an instant; None if there is none."""
    return next(slots_after(entry, after), None)


def offset(entry: Entry) -> timedelta:
    """How long after each of its slots an entry is due: its name's share of `jitter`, in whole milliseconds."""
    share = int.from_bytes(hashlib.sha256(entry.name.encode()).digest()[:6], "big")
    return (entry.jitter // _MILLISECOND * share // 2**48) * _MILLISECOND


def shortest_period(entry: Entry, start: datetime, sample: int = 400) -> timedelta | None:
    """The shortest gap between the next slots of an entry; None if it has fewer than two.

    The sample of a daily entry is longer than a year, so that it holds the short day of a change of clocks.
    """
    return min(_gaps(entry, start, sample), default=None)


def longest_period(entry: Entry, start: datetime, sample: int = 400) -> timedelta | None:
    """The longest gap between as many next slots of an entry; None if it has fewer than two."""
    return max(_gaps(entry, start, sample), default=None)


def _gaps(entry: Entry, start: datetime, sample: int) -> list[timedelta]:
    slots = [slot for _, slot in zip(range(sample), slots_after(entry, start), strict=False)]
    return [later - earlier for earlier, later in pairwise(slots)]
