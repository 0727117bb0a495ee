"""The slots of an entry on ordinary days and on the two days of the year when the clocks change."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet import Entry
from fleet.errors import DeclarationInvalid
from fleet.slots import next_slot, offset, shortest_period, slots_after, slots_between

BERLIN = ZoneInfo("Europe/Berlin")
SPRING, AUTUMN = datetime(2026, 3, 29, tzinfo=BERLIN), datetime(2026, 10, 25, tzinfo=BERLIN)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def cron(expression: str, tz: str = "Europe/Berlin") -> Entry:
    return Entry("e", expires=timedelta(minutes=1), because="banks close their day", cron=expression, tz=tz)


def every(period: timedelta) -> Entry:
    return Entry("e", expires=timedelta(minutes=1), because="banks close their day", every=period)


def day(start: datetime) -> tuple[datetime, datetime]:
    """A local day as (the instant before its midnight, the instant before its end), in UTC."""
    last = datetime.combine(start.date() + timedelta(days=1), start.timetz())
    just = timedelta(microseconds=1)
    return start.astimezone(UTC) - just, last.astimezone(UTC) - just


@pytest.mark.parametrize("start", [SPRING, AUTUMN])
@pytest.mark.parametrize("at", ["0 0", "59 1", "0 2", "30 2", "59 2", "0 3", "10 3", "59 23"])
def test_a_daily_job_fires_exactly_once_on_the_day_the_clocks_change(start: datetime, at: str) -> None:
    assert len(list(slots_between(cron(f"{at} * * *"), *day(start)))) == 1


def test_a_time_that_spring_leaves_out_fires_at_the_moment_it_is_passed_over() -> None:
    assert list(slots_between(cron("30 2 * * *"), *day(SPRING))) == [datetime(2026, 3, 29, 1, 0, tzinfo=UTC)]


@pytest.mark.parametrize(("start", "hours"), [(SPRING, 23), (AUTUMN, 25)])
@pytest.mark.parametrize(("expression", "an_hour"), [("0 * * * *", 1), ("*/10 * * * *", 6), ("* * * * *", 60)])
def test_hourly_and_more_frequent_jobs_stay_unbroken(
    start: datetime, hours: int, expression: str, an_hour: int
) -> None:
    slots = list(slots_between(cron(expression), *day(start)))
    assert len(slots) == hours * an_hour
    assert {later - earlier for earlier, later in pairwise(slots)} == {timedelta(hours=1) / an_hour}


@pytest.mark.parametrize("start", [SPRING, AUTUMN])
def test_an_interval_does_not_know_that_the_clocks_changed(start: datetime) -> None:
    slots = list(slots_between(every(timedelta(minutes=7)), *day(start)))
    assert {later - earlier for earlier, later in pairwise(slots)} == {timedelta(minutes=7)}


@settings(max_examples=200)
@given(
    expression=st.sampled_from(["30 2 * * *", "0 3 * * *", "*/20 * * * *", "15 * * * *", "30 1,2 * * *", "0 2 * * 0"]),
    start=st.sampled_from([SPRING, AUTUMN]),
    minute=st.integers(0, 30 * 60),
    micros=st.sampled_from([0, 1, 59_999_999]),
)
def test_slots_do_not_depend_on_the_instant_one_starts_counting_from(
    expression: str, start: datetime, minute: int, micros: int
) -> None:
    before = start.astimezone(UTC) - timedelta(hours=3)
    after = before + timedelta(minutes=minute, microseconds=micros)
    whole = [slot for slot in islice(slots_after(cron(expression), before), 200) if slot > after]
    assert next_slot(cron(expression), after) == whole[0]


@given(
    seconds=st.integers(1, 10**6),
    after=st.integers(0, 4 * 10**15).map(lambda micros: EPOCH + timedelta(microseconds=micros)),
)
def test_interval_slots_are_aligned_to_the_epoch_and_strictly_after(seconds: int, after: datetime) -> None:
    period = timedelta(seconds=seconds)
    first, second = islice(slots_after(every(period), after), 2)
    assert after < first <= after + period
    assert (first - EPOCH) % period == timedelta(0)
    assert second - first == period


def test_between_holds_its_end_and_not_its_start() -> None:
    hour = timedelta(hours=1)
    start = datetime(2026, 5, 1, tzinfo=UTC)
    assert list(slots_between(every(hour), start, start + 2 * hour)) == [start + hour, start + 2 * hour]


def test_cron_is_read_in_the_entrys_own_zone_and_given_in_utc() -> None:
    slot = next_slot(cron("0 1 * * *", "Asia/Tokyo"), datetime(2026, 5, 1, tzinfo=UTC))
    assert slot == datetime(2026, 5, 1, 16, tzinfo=UTC)
    assert slot.tzinfo is UTC


def test_an_entrys_share_of_jitter_is_its_names_and_names_are_spread() -> None:
    jitter = timedelta(minutes=10)
    shares = [
        offset(replace(every(timedelta(hours=1)), name=f"entry-{number}", jitter=jitter, expires=2 * jitter))
        for number in range(200)
    ]
    assert shares[0] == offset(replace(every(timedelta(hours=1)), name="entry-0", jitter=jitter, expires=2 * jitter))
    assert all(timedelta(0) <= share < jitter and not share % timedelta(milliseconds=1) for share in shares)
    thirds = [share // (jitter / 3) for share in shares]
    assert min(thirds.count(third) for third in (0, 1, 2)) > 40
    assert offset(every(timedelta(hours=1))) == timedelta(0)


def test_a_daily_entrys_shortest_period_is_the_short_day_at_any_time_of_the_year() -> None:
    for month in (1, 4, 6, 11):
        assert shortest_period(cron("0 3 * * *"), datetime(2026, month, 1, tzinfo=UTC)) == timedelta(hours=23)


@pytest.mark.parametrize("expression", ["", "* * * *", "61 * * * *", "a b c d e", "0 0 * * 9", "0 0 30 2 *"])
def test_a_cron_that_cannot_be_read_is_refused_with_entry_and_expression(expression: str) -> None:
    with pytest.raises(DeclarationInvalid, match=r"Entry\('e', cron="):
        next_slot(cron(expression), EPOCH)
