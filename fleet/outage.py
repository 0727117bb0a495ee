"""The slots of a long time, without going through them: how many there were, and the last few.

An interval's are a division. A cron's are counted by the day: on a day without a change of clocks they are the hours
times the minutes times the seconds that the expression names. Around a change of clocks cronsim itself goes through
the hours in question, where its rules for that day could matter (an expression with a fixed minute and hour); other
expressions follow the clock's face, before the change and after it.

Not guaranteed: exact counts where a zone changed its clocks twice within a day.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

from fleet.declarations import ZERO, Entry
from fleet.slots import EPOCH, cron, slots_between

_TICK = timedelta(microseconds=1)
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


def latest_slots(entry: Entry, after: datetime, until: datetime, most: int) -> list[datetime]:
    """The last `most` slots after one instant, up to and with another; oldest first."""
    if entry.every is not None:
        last = (until - EPOCH) // entry.every
        first = max((after - EPOCH) // entry.every + 1, last - most + 1)
        return [EPOCH + entry.every * number for number in range(first, last + 1)]
    back = most + 2
    while True:
        # Only forwards does cronsim say what the slots are; backwards says from where to ask.
        start = max(after, _steps_back(entry, until, back, after))
        found = list(slots_between(entry, start, until))
        if len(found) >= most or start == after:
            return found[-most:]
        back *= 2


def _steps_back(entry: Entry, until: datetime, steps: int, no_further: datetime) -> datetime:
    instant = until
    backwards = _backwards(entry, until + timedelta(seconds=1))
    for _ in range(steps):
        slot = next(backwards, None)
        if slot is None or slot <= no_further:
            return no_further
        instant = slot
    return instant - timedelta(seconds=1)


def _backwards(entry: Entry, instant: datetime) -> Iterator[datetime]:
    """The slots before an instant as if no clock was changed: given a zone, cronsim may name one of them for ever."""
    ahead = instant.astimezone(ZoneInfo(entry.tz)).utcoffset() or ZERO
    for face in CronSim(str(entry.cron), (instant.astimezone(UTC) + ahead).replace(tzinfo=None), reverse=True):
        yield face.replace(tzinfo=UTC) - ahead


def count_between(entry: Entry, after: datetime, until: datetime) -> int:
    """How many slots there are after one instant, up to and with another."""
    if until <= after:
        return 0
    if entry.every is not None:
        return (until - EPOCH) // entry.every - (after - EPOCH) // entry.every
    parsed, zone = cron(entry, after), ZoneInfo(entry.tz)
    total, at = 0, after
    for change, shift in _changes(zone, after, until):
        by_rule = parsed.fixup_tz is not None
        around = abs(shift) + _HOUR if by_rule else _TICK
        begins, ends = max(at, change - around), min(until, change + around if by_rule else change - _TICK)
        if begins > ends or ends <= at:
            continue
        total += _on_the_face(parsed, zone, at, begins) + sum(1 for _ in slots_between(entry, begins, ends))
        at = ends
    return total + _on_the_face(parsed, zone, at, until)


def _on_the_face(parsed: CronSim, zone: ZoneInfo, after: datetime, until: datetime) -> int:
    """Slots of a time within which no clock is changed: those the clock's face shows."""
    if until <= after:
        return 0
    ahead = (after + _TICK).astimezone(zone).utcoffset() or ZERO
    first, last = ((instant.astimezone(UTC) + ahead).replace(tzinfo=None) for instant in (after, until))
    return _faces(parsed, first, last)


def _faces(parsed: CronSim, after: datetime, until: datetime) -> int:
    """How many local times after one, up to and with another, an expression names."""
    a_day = len(parsed.hours) * len(parsed.minutes) * len(parsed.seconds)

    def up_to(moment: datetime) -> int:
        return _times_until(parsed, moment.time()) if _named(parsed, moment.date()) else 0

    if after.date() == until.date():
        return up_to(until) - up_to(after)
    rest = a_day - up_to(after) if _named(parsed, after.date()) else 0
    days = sum(_named(parsed, day) for day in _days_between(after.date(), until.date()))
    return rest + days * a_day + up_to(until)


def _days_between(first: date, last: date) -> Iterator[date]:
    for number in range(first.toordinal() + 1, last.toordinal()):
        yield date.fromordinal(number)


def _named(parsed: CronSim, day: date) -> bool:
    return day.month in parsed.months and bool(parsed.match_day(day))


def _times_until(parsed: CronSim, moment: time) -> int:
    """How many times of day up to and with this one an expression names."""
    hours, minutes, seconds = parsed.hours, parsed.minutes, parsed.seconds
    count = sum(hour < moment.hour for hour in hours) * len(minutes) * len(seconds)
    if moment.hour in hours:
        count += sum(minute < moment.minute for minute in minutes) * len(seconds)
        if moment.minute in minutes:
            count += sum(second <= moment.second for second in seconds)
    return count


def _changes(zone: ZoneInfo, after: datetime, until: datetime) -> Iterator[tuple[datetime, timedelta]]:
    """Each instant at which the zone's clocks are changed, and by how much."""
    for number in range((after - _DAY - EPOCH) // _DAY, (until + _DAY - EPOCH) // _DAY + 1):
        change = _change_on(zone, number)
        if change is not None and after - 2 * _DAY < change[0] <= until + 2 * _DAY:
            yield change


@lru_cache(maxsize=4096)
def _change_on(zone: ZoneInfo, number: int) -> tuple[datetime, timedelta] | None:
    """The change of clocks on the day of this number, counted from the epoch in UTC."""
    low, high = EPOCH + number * _DAY, EPOCH + (number + 1) * _DAY
    before, behind = low.astimezone(zone).utcoffset() or ZERO, high.astimezone(zone).utcoffset() or ZERO
    if before == behind:
        return None
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0)
        if (middle.astimezone(zone).utcoffset() or ZERO) == before:
            low = middle
        else:
            high = middle
    return high, behind - before
