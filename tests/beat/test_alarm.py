"""The alarm clock rings at each slot, once, in real and in compressed time."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.schedulers.background import BackgroundScheduler

from beat import __main__ as replica
from beat.alarm import alarm_clock
from fleet import Entry
from fleet.clock import Night, clock
from tests.waiting import wait_until

ORIGIN = datetime(2026, 3, 2, 0, 59, 30, tzinfo=UTC)


def entry(name: str, **when: object) -> Entry:
    return Entry(name, expires=timedelta(minutes=1), because="a test needs slots", **when)  # type: ignore[arg-type]


@pytest.fixture
def alarm() -> Iterator[Callable[..., BackgroundScheduler]]:
    """Start an alarm clock; it is shut down afterwards, and so is the night."""
    started: list[BackgroundScheduler] = []

    def start(schedule: list[Entry], ring: Callable[[str], None]) -> BackgroundScheduler:
        scheduler = alarm_clock(schedule, ring)
        started.append(scheduler)
        scheduler.start()
        return scheduler

    yield start
    for scheduler in started:
        scheduler.shutdown()
    clock.set_night(None)


def test_a_compressed_night_rings_at_each_slot_and_at_nothing_else(alarm: Callable[..., BackgroundScheduler]) -> None:
    # 1/7 of a microsecond and an odd rate, so that no slot is a whole microsecond of real time.
    clock.set_night(Night(origin=ORIGIN, anchor=datetime.now(UTC), rate=3601.7))
    rung: list[tuple[str, datetime]] = []
    alarm(
        [entry("minutes", cron="* * * * *"), entry("hour", cron="0 1 * * *"), entry("never", cron="0 0 1 1 *")],
        lambda name: rung.append((name, clock.now())),
    )
    wait_until(lambda: len(rung) >= 61)
    assert Counter(name for name, _ in rung)["hour"] == 1
    assert not [name for name, _ in rung if name == "never"]
    minutes = [instant for name, instant in rung if name == "minutes"]
    slots = [instant.replace(second=0, microsecond=0) for instant in minutes]
    assert slots == sorted(set(slots)), "a slot was rung twice"
    elapsed = (minutes[-1] - ORIGIN) / timedelta(minutes=1)
    assert len(minutes) <= elapsed + 1


def test_a_slot_is_never_rung_before_it_has_come(alarm: Callable[..., BackgroundScheduler]) -> None:
    """A ring that comes early finds no slot due, and that slot would wait for the next pass."""
    clock.set_night(Night(origin=ORIGIN, anchor=datetime.now(UTC), rate=240.3))
    rung: list[datetime] = []
    alarm([entry("minutes", cron="* * * * *")], lambda _: rung.append(clock.now()))
    wait_until(lambda: len(rung) >= 4)
    assert all(instant.second < 30 for instant in rung), f"rung before the minute: {rung}"


def test_real_time_rings_within_a_fraction_of_its_slot(alarm: Callable[..., BackgroundScheduler]) -> None:
    rung: list[datetime] = []
    alarm([entry("seconds", every=timedelta(seconds=1))], lambda _: rung.append(datetime.now(UTC)))
    wait_until(lambda: len(rung) >= 3)
    seconds = [instant.replace(microsecond=0) for instant in rung]
    assert seconds == [seconds[0] + timedelta(seconds=number) for number in range(len(rung))]
    assert all(instant.microsecond < 700_000 for instant in rung)


def test_a_ring_that_raises_silences_neither_itself_nor_the_others(alarm: Callable[..., BackgroundScheduler]) -> None:
    rung: Counter[str] = Counter()

    def ring(name: str) -> None:
        rung[name] += 1
        if name == "bad":
            raise RuntimeError("the beat is not listening")

    clock.set_night(Night(origin=ORIGIN, anchor=datetime.now(UTC), rate=240))
    alarm([entry("bad", cron="* * * * *"), entry("good", cron="* * * * *")], ring)
    wait_until(lambda: rung["bad"] >= 3 and rung["good"] >= 3)


def test_entries_that_ring_all_the_time_do_not_keep_the_beat_from_passing_over_all() -> None:
    """An entry whose ring came while Redis was away has only the ordinary pass to be fired by."""
    passes: list[list[str] | None] = []

    class Recorder:
        def pass_over(self, names: list[str] | None = None) -> None:
            passes.append(names)

    rings: queue.SimpleQueue[object] = queue.SimpleQueue()
    beat = threading.Thread(target=replica._fire_until_stopped, args=(rings, Recorder(), replica._LastPass()))
    beat.start()
    ends = time.monotonic() + 3.5
    while time.monotonic() < ends:
        rings.put("busy")
        time.sleep(0.05)
    rings.put(replica._STOP)
    beat.join(5)
    assert not beat.is_alive()
    assert 3 <= passes.count(None) <= 5
    assert passes.count(["busy"]) > 30, "and rings are answered as before"
