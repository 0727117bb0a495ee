"""Every time zone there is, where its clocks change in ten years, by the kinds of cron people write.

The slots are compared with an oracle that knows zones and no cron library. A time of day that the clocks leave out
comes in the moment they pass it over (if the next slot comes then too, it is one), one that they repeat comes the first
time; crons with a star for minute or hour come whenever the wall clock shows them. A calendar day that a zone skips
whole (Pacific/Apia, 30 December 2011) so has its slot in the moment it was passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

import pytest

from fleet import Entry
from fleet.outage import count_between, latest_slots
from fleet.slots import next_slot, slots_between

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
AROUND = 2 * DAY
# The first holds days skipped whole, changes of half an hour and the most fickle zones; the second is ours.
YEARS = [(2010, 2020), (2026, 2036)]
KINDS = {
    "30 2 * * *": ({30}, {2}, None, None),
    "0 0 * * *": ({0}, {0}, None, None),
    "59 23 * * *": ({59}, {23}, None, None),
    "0,30 2,3 * * *": ({0, 30}, {2, 3}, None, None),
    "15 0-4 * * *": ({15}, set(range(5)), None, None),
    "30 8 * * 1-5": ({30}, {8}, None, {0, 1, 2, 3, 4}),
    "0 2 * * 0": ({0}, {2}, None, {6}),
    "0 3 1 * *": ({0}, {3}, {1}, None),
    "0 * * * *": ({0}, set(range(24)), None, None),
    "*/15 * * * *": ({0, 15, 30, 45}, set(range(24)), None, None),
    "0 */6 * * *": ({0}, {0, 6, 12, 18}, None, None),
    "*/30 2 * * *": ({0, 30}, {2}, None, None),
}
Change = tuple[datetime, timedelta, timedelta]
"""The first instant of another offset, the offset before, and the one from then on."""


def entry(cron: str, zone: str) -> Entry:
    return Entry("e", cron=cron, tz=zone, expires=MINUTE, because="banks close their day")


@cache
def changes(zone: str, first: int, last: int) -> tuple[Change, ...]:
    """Where a zone's offset changes between two years, to the minute."""
    info, found = ZoneInfo(zone), []
    at, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last, 1, 1, tzinfo=UTC)
    while at < end:
        if at.astimezone(info).utcoffset() != (at + DAY).astimezone(info).utcoffset():
            low, high = at, at + DAY
            while high - low > MINUTE:
                middle = low + (high - low) // 2 // MINUTE * MINUTE
                same = middle.astimezone(info).utcoffset() == at.astimezone(info).utcoffset()
                low, high = (middle, high) if same else (low, middle)
            found.append((high, _offset(low, info), _offset(high, info)))
        at += DAY
    return tuple(found)


def _offset(instant: datetime, info: ZoneInfo) -> timedelta:
    offset = instant.astimezone(info).utcoffset()
    assert offset is not None
    return offset


def families(first: int, last: int) -> dict[tuple[Change, ...], str]:
    """One zone of all that change alike; those that never do are left to UTC."""
    return {found: zone for zone in sorted(available_timezones()) if (found := changes(zone, first, last))}


class Oracle:
    """The slots of a kind around one change of a zone's offset, between `start` and `end`."""

    def __init__(self, cron: str, change: Change) -> None:
        self.at, self.before, self.after = change
        self.start, self.end = self.at - AROUND, self.at + AROUND
        self._minutes, self._hours, self._days, self._weekdays = KINDS[cron]
        minute, hour = cron.split()[:2]
        starred = minute.startswith("*") or hour.startswith("*")
        found = set(self._shown() if starred else self._passed())
        self.slots = sorted(slot for slot in found if self.start < slot <= self.end)

    def _day(self, day: date) -> bool:
        return (self._days is None or day.day in self._days) and (
            self._weekdays is None or day.weekday() in self._weekdays
        )

    def _shown(self) -> Iterator[datetime]:
        instant = self.start
        while instant <= self.end:
            wall = instant + (self.before if instant < self.at else self.after)
            if wall.minute in self._minutes and wall.hour in self._hours and self._day(wall.date()):
                yield instant
            instant += MINUTE

    def _passed(self) -> Iterator[datetime]:
        first = (self.start + self.before).date() - DAY
        for number in range(8):
            day = first + number * DAY
            if not self._day(day):
                continue
            for hour in self._hours:
                for minute in self._minutes:
                    wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)
                    if wall - self.before < self.at:
                        yield wall - self.before
                    else:
                        yield max(self.at, wall - self.after)


def every_change(first: int, last: int) -> list[tuple[str, Change]]:
    """Zones and their changes, but those that come within the sight of another one."""
    alone = []
    for found, zone in families(first, last).items():
        for number, change in enumerate(found):
            others = found[max(0, number - 1) : number] + found[number + 1 : number + 2]
            if all(abs(other[0] - change[0]) > 2 * AROUND for other in others):
                alone.append((zone, change))
    return alone


def each_alike_once(every: list[tuple[str, Change]]) -> list[tuple[str, Change]]:
    """One of all changes from and to the same offsets at the same time of day, and one of those in each weekday."""
    alike = {
        (before, after, (at + before).time(), (at + before).weekday()): (zone, (at, before, after))
        for zone, (at, before, after) in every
    }
    return list(alike.values())


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("first", "last", "chosen"),
    [
        pytest.param(*years, chosen, marks=[pytest.mark.soak] if chosen is None else [], id=f"{years[0]}-{name}")
        for years in YEARS
        for name, chosen in (("alike", each_alike_once), ("every", None))
    ],
)
def test_around_every_change_of_clocks_the_slots_are_those_of_the_oracle(
    first: int, last: int, chosen: Callable[[list[tuple[str, Change]]], list[tuple[str, Change]]] | None
) -> None:
    every = every_change(first, last)
    some = every if chosen is None else chosen(every)
    assert len(some) > 20
    for zone, change in some:
        for cron in KINDS:
            oracle, of_zone = Oracle(cron, change), entry(cron, zone)
            # Bounded, since what it must find out is whether there is an end.
            slots = list(islice(slots_between(of_zone, oracle.start, oracle.end), len(oracle.slots) + 1))
            assert slots == oracle.slots, f"{cron} in {zone} around {change[0]}"
            assert count_between(of_zone, oracle.start, oracle.end) == len(slots), f"{cron} in {zone}, {change[0]}"
            assert latest_slots(of_zone, oracle.start, oracle.end, 3) == slots[-3:], f"{cron} in {zone}, {change[0]}"


@pytest.mark.parametrize("zone", ["Pacific/Chatham", "Australia/Lord_Howe", "America/Goose_Bay", "Africa/Casablanca"])
def test_the_next_slot_does_not_depend_on_where_around_a_change_one_begins(zone: str) -> None:
    first, last = YEARS[0] if zone == "America/Goose_Bay" else YEARS[1]
    change = changes(zone, first, last)[0]
    for cron in KINDS:
        oracle = Oracle(cron, change)
        for minutes in range(-180, 181, 7):
            after = change[0] + minutes * MINUTE + timedelta(microseconds=minutes % 2)
            expected = [slot for slot in oracle.slots if slot > after]
            if expected:
                assert next_slot(entry(cron, zone), after) == expected[0], f"{cron} in {zone} after {after}"


@pytest.mark.parametrize("cron", ["30 2 * * *", "0 0 * * *"])
def test_a_day_that_a_zone_skipped_whole_has_its_slot_in_the_moment_it_was_passed_over(cron: str) -> None:
    start, end = (datetime(2011, 12, day, tzinfo=ZoneInfo("Pacific/Apia")) for day in (29, 31))
    passed_over = datetime(2011, 12, 30, 10, tzinfo=UTC)
    slots = list(slots_between(entry(cron, "Pacific/Apia"), start - timedelta(seconds=1), end + 23 * HOUR))
    assert passed_over in slots
    assert len(slots) == (2 if cron == "0 0 * * *" else 3), "midnight of the next day is the same moment"


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("first", "last"), YEARS)
@pytest.mark.parametrize(("hour", "minute"), [(2, 30), (0, 0), (23, 45)])
def test_a_daily_job_comes_once_a_day_for_ten_years_in_every_zone(
    hour: int, minute: int, first: int, last: int
) -> None:
    for found, zone in families(first, last).items():
        info = ZoneInfo(zone)
        start, end = datetime(first, 1, 5, 12, tzinfo=info), datetime(last, 1, 5, 12, tzinfo=info)
        slots = list(islice(slots_between(entry(f"{minute} {hour} * * *", zone), start, end), 5_000))
        assert slots == sorted(set(slots)), f"{zone}: one twice, or out of order"
        walls = [slot.astimezone(info) for slot in slots]
        at_its_time = [wall.date() for wall in walls if (wall.hour, wall.minute) == (hour, minute)]
        passed_over = {
            slot for slot, wall in zip(slots, walls, strict=True) if (wall.hour, wall.minute) != (hour, minute)
        }
        assert len(at_its_time) == len(set(at_its_time)), f"{zone}: a day had two"
        assert passed_over <= {at for at, _, _ in found}, f"{zone}: at another time, and not where it was passed over"
        days = (end.date() - start.date()).days
        # The midnight of a day that was skipped whole and that of the day after it are one moment.
        merged = (hour, minute) == (0, 0) and first == 2010 and zone in ("Pacific/Apia", "Pacific/Fakaofo")
        assert len(slots) == days - merged, f"{zone}: {len(slots)} slots in {days} days"
