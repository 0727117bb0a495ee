"""How many slots a long time holds, and the last of them, are what going through them one by one finds."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet import Entry
from fleet.outage import count_between, latest_slots
from fleet.slots import slots_between

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
ZONES = ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "UTC"]
CRONS = [
    *("30 2 * * *", "*/20 * * * *", "15 * * * *", "30 1,2 * * *", "0 2 * * 0", "* * * * *", "0-59 0-23 * * *"),
    *("0 0 L * *", "*/7 */5 * * *", "10 */2 1-9 * *", "0 0 13 * 5", "0 0 1 1 *"),
]
# The days around which clocks were changed in one of the zones, and one in the middle of summer.
DAYS = [datetime(2026, 3, 28), datetime(2026, 10, 24), datetime(2026, 4, 4), datetime(2026, 3, 7), datetime(2026, 7, 1)]  # noqa: DTZ001


def entry(cron: str | None = None, tz: str = "UTC", every: timedelta | None = None) -> Entry:
    return Entry("e", expires=HOUR, because="banks close their day", cron=cron, tz=tz, every=every)


@settings(max_examples=400, deadline=None)
@given(
    cron=st.sampled_from(CRONS),
    tz=st.sampled_from(ZONES),
    day=st.sampled_from([day.replace(tzinfo=UTC) for day in DAYS]),
    begins=st.integers(0, 3 * 86_400_000).map(lambda ms: timedelta(milliseconds=ms)),
    lasts=st.one_of(st.integers(0, 7_200_000), st.integers(0, 20 * 86_400_000)).map(
        lambda ms: timedelta(milliseconds=ms)
    ),
    most=st.integers(1, 6),
)
def test_a_crons_slots_are_counted_and_the_last_ones_found(
    cron: str, tz: str, day: datetime, begins: timedelta, lasts: timedelta, most: int
) -> None:
    after = day + begins
    slots = list(slots_between(entry(cron, tz), after, after + lasts))
    assert count_between(entry(cron, tz), after, after + lasts) == len(slots)
    assert latest_slots(entry(cron, tz), after, after + lasts, most) == slots[-most:]


@given(
    every=st.integers(1_000, 10**7).map(lambda ms: timedelta(milliseconds=ms)),
    begins=st.integers(0, 10**9).map(lambda ms: timedelta(milliseconds=ms)),
    lasts=st.integers(0, 10**6).map(lambda ms: timedelta(milliseconds=ms)),
    most=st.integers(1, 6),
)
def test_an_intervals_slots_are_counted_and_the_last_ones_found(
    every: timedelta, begins: timedelta, lasts: timedelta, most: int
) -> None:
    after = datetime(2026, 1, 1, tzinfo=UTC) + begins
    slots = list(slots_between(entry(every=every), after, after + lasts))
    assert count_between(entry(every=every), after, after + lasts) == len(slots)
    assert latest_slots(entry(every=every), after, after + lasts, most) == slots[-most:]


@pytest.mark.parametrize(
    ("cron", "tz", "seconds"),
    [
        ("* * * * * *", "UTC", 365 * 86_400),
        ("* * * * * *", "Europe/Berlin", 365 * 86_400),
        ("* * * * *", "Europe/Berlin", 365 * 1_440),
        (
            "0-59 0-23 * * *",
            "Europe/Berlin",
            365 * 1_440 - 60,
        ),  # a fixed time of day comes once in the hour twice there
    ],
)
def test_a_year_of_slots_is_counted_in_a_moment(cron: str, tz: str, seconds: int) -> None:
    after = datetime(2025, 5, 1, tzinfo=UTC)
    began = time.thread_time()
    assert count_between(entry(cron, tz), after, after + 365 * DAY) == seconds
    assert len(latest_slots(entry(cron, tz), after, after + 365 * DAY, 10)) == 10
    assert time.thread_time() - began < 0.1


def test_nothing_is_counted_backwards() -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert count_between(entry("* * * * *"), noon, noon - HOUR) == 0
    assert latest_slots(entry("0 0 1 1 *"), noon, noon + HOUR, 3) == []
