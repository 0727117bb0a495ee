"""An elastic entry's night as instants: over midnight, over a change of clocks, and what runs where nobody decides."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from fleet.window import level, window
from tests.fleet.elastic_house import ENTRY, with_elastic

BERLIN = ZoneInfo("Europe/Berlin")
ENTRY = replace(ENTRY, tz="Europe/Berlin")
EVENING = with_elastic(ENTRY, window=(time(22, 30), time(6, 15)))
QUOTA = with_elastic(ENTRY, quota="model")


def berlin(day: int, hour: int, minute: int = 0, month: int = 6) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=BERLIN)


@pytest.mark.parametrize("now", [berlin(10, 22, 30), berlin(10, 23, 59), berlin(11, 0), berlin(11, 7, 59)])
def test_a_night_that_opens_in_the_evening_is_one_night_until_it_closes(now: datetime) -> None:
    found = window(EVENING, now.astimezone(UTC))
    assert (found.opens, found.slot, found.deadline) == (berlin(10, 22, 30), berlin(11, 4), berlin(11, 6, 15))
    assert (found.day, found.closes) == (berlin(11, 6, 30), berlin(11, 8))
    assert found.holds(now)


def test_between_two_nights_it_is_the_next_one_and_does_not_hold() -> None:
    found = window(EVENING, berlin(10, 12))
    assert found.opens == berlin(10, 22, 30)
    assert not found.holds(berlin(10, 12))


def test_with_a_quota_a_night_closes_at_its_deadline() -> None:
    assert window(QUOTA, berlin(10, 5)).closes == berlin(10, 6, 15)


def test_where_nobody_decides_all_chains_run_from_the_slot_to_the_day_or_to_a_quotas_deadline() -> None:
    at = [berlin(10, hour, minute) for hour, minute in ((3, 59), (4, 0), (6, 15), (6, 29), (6, 30))]
    assert [level(ENTRY, now) for now in at] == [0, 4, 4, 4, 0]
    assert [level(QUOTA, now) for now in at] == [0, 4, 0, 0, 0]


@pytest.mark.parametrize(("month", "day", "hours"), [(3, 29, 4.75), (10, 25, 6.75)])
def test_ends_are_where_the_wall_clock_shows_them_in_the_night_of_a_change(month: int, day: int, hours: float) -> None:
    found = window(ENTRY, berlin(day, 5, month=month))
    assert found.deadline - found.opens == timedelta(hours=hours)
    assert found.deadline.astimezone(BERLIN).time() == time(6, 15)
