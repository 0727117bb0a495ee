"""Night time is an affine function of real time, and the same as real time where no night is played."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet import clock as clocks
from fleet.clock import Clock, Night
from fleet.settings import Settings

ANCHOR = datetime(2026, 6, 1, 12, tzinfo=UTC)
ORIGIN = datetime(2026, 3, 2, tzinfo=ZoneInfo("Europe/Berlin"))
NIGHT = Night(origin=ORIGIN, anchor=ANCHOR, rate=240.0)


def test_a_second_of_the_night_clock_is_rate_seconds_from_its_origin() -> None:
    clock = Clock(NIGHT)
    assert clock.to_night(ANCHOR) == ORIGIN
    assert clock.to_night(ANCHOR + timedelta(seconds=1)) == ORIGIN + timedelta(minutes=4)
    assert clock.to_real_instant(ORIGIN + timedelta(hours=8)) == ANCHOR + timedelta(minutes=2)


def test_a_night_across_a_change_of_clocks_counts_real_hours_not_wall_hours() -> None:
    clock = Clock(Night(datetime(2026, 3, 29, tzinfo=ZoneInfo("Europe/Berlin")), ANCHOR, 3600.0))
    assert clock.to_night(ANCHOR + timedelta(seconds=4)) == datetime(2026, 3, 29, 3, tzinfo=UTC)
    assert clock.to_real_instant(datetime(2026, 3, 29, 3, tzinfo=UTC)) == ANCHOR + timedelta(seconds=4)


@given(
    real=st.integers(0, 10**9).map(
        lambda seconds: ANCHOR + timedelta(seconds=seconds, microseconds=seconds % 1_000_003)
    ),
    rate=st.floats(0.5, 5_000),
)
def test_to_the_night_and_back_is_the_same_instant_to_a_few_microseconds(real: datetime, rate: float) -> None:
    clock = Clock(Night(ORIGIN, real - timedelta(hours=3), rate))
    assert abs(clock.to_real_instant(clock.to_night(real)) - real) <= timedelta(microseconds=5)


@given(seconds=st.floats(0, 1e6), rate=st.floats(0.5, 5_000))
def test_a_night_duration_in_real_time_is_what_the_two_instants_are_apart(seconds: float, rate: float) -> None:
    clock, duration = Clock(Night(ORIGIN, ANCHOR, rate)), timedelta(seconds=seconds)
    apart = clock.to_real_instant(ORIGIN + duration) - clock.to_real_instant(ORIGIN)
    assert abs(apart - clock.to_real(duration)) <= timedelta(microseconds=5)


def test_without_a_night_both_clocks_are_one() -> None:
    clock = Clock()
    assert clock.rate == 1.0
    assert clock.to_night(ANCHOR) == ANCHOR == clock.to_real_instant(ANCHOR)
    assert clock.to_real(timedelta(hours=1)) == timedelta(hours=1)
    assert abs(clock.now() - clock.real_now()) < timedelta(seconds=1)


def test_instants_are_aware_and_in_utc_whatever_the_origins_zone() -> None:
    assert Clock(NIGHT).now().tzinfo is UTC
    assert Clock().real_now().tzinfo is UTC


def test_sleeping_a_night_duration_takes_its_real_share_and_a_negative_one_nothing() -> None:
    clock = Clock(NIGHT)
    started = time.monotonic()
    clock.sleep(timedelta(seconds=24))
    clock.sleep(timedelta(hours=-1))
    assert 0.1 <= time.monotonic() - started < 2


def test_a_night_handed_to_a_child_by_environment_is_the_same_night(monkeypatch: pytest.MonkeyPatch) -> None:
    night = Night(ORIGIN, ANCHOR + timedelta(microseconds=1), 240.1)
    for name, value in clocks.environment(night).items():
        monkeypatch.setenv(name, value)
    try:
        clocks.configure(Settings.read())
        assert clocks.clock.to_night(ANCHOR) == Clock(night).to_night(ANCHOR)
    finally:
        clocks.clock.set_night(None)
