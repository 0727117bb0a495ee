"""The alarm clock rings at each slot, once, in real and in compressed time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.jobstores.memory import MemoryJobStore
from structlog.testing import capture_logs

from beat import alarm as alarms
from beat.alarm import AlarmClock
from beat.now import Now
from fleet import Entry
from fleet.clock import Night, clock
from fleet.slots import next_slot, offset
from tests.waiting import wait_until

ORIGIN = datetime(2026, 3, 2, 0, 59, 30, tzinfo=UTC)


def entry(name: str, **when: object) -> Entry:
    return Entry(name, expires=timedelta(minutes=1), because="a test needs slots", **when)  # type: ignore[arg-type]


@pytest.fixture
def alarm() -> Iterator[Callable[..., AlarmClock]]:
    """Start an alarm clock; it is stopped afterwards, and so is the night."""
    started: list[AlarmClock] = []

    def start(
        schedule: list[Entry], ring: Callable[[str], None], now: Now | None = None, store: MemoryJobStore | None = None
    ) -> AlarmClock:
        made = AlarmClock(schedule, ring, now or Now())
        if store is not None:
            made.scheduler.add_jobstore(store)
        started.append(made)
        made.start()
        return made

    yield start
    for made in started:
        made.stop()
    clock.set_night(None)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The slots that the trigger of `minutes` found. Its k-th ring is for the k-th of them, however late it comes."""
    slots: list[datetime] = []

    def finding(entry: Entry, after: datetime) -> datetime | None:
        slot = next_slot(entry, after)
        if entry.name == "minutes" and slot is not None:
            slots.append(slot)
        return slot

    monkeypatch.setattr(alarms, "next_slot", finding)
    return slots


def test_a_compressed_night_rings_at_each_slot_and_at_nothing_else(
    alarm: Callable[..., AlarmClock], found: list[datetime]
) -> None:
    # 1/7 of a microsecond and an odd rate, so that no slot is a whole microsecond of real time.
    origin = ORIGIN - timedelta(hours=2)  # two seconds of real time until one o'clock
    clock.set_night(Night(origin=origin, anchor=datetime.now(UTC), rate=3601.7))
    rung: list[tuple[str, datetime]] = []
    alarm(
        [entry("minutes", cron="* * * * *"), entry("hour", cron="0 1 * * *"), entry("never", cron="0 0 1 1 *")],
        lambda name: rung.append((name, clock.now())),
    )
    wait_until(lambda: len(rung) >= 61 and "hour" in [name for name, _ in rung])
    told = list(rung)
    assert Counter(name for name, _ in told)["hour"] == 1
    assert not [name for name, _ in told if name == "never"]
    minutes = [instant for name, instant in told if name == "minutes"]
    slots = found[: len(minutes)]
    assert slots == sorted(set(slots)), "a slot was found twice"
    assert all(at >= slot for at, slot in zip(minutes, slots, strict=True)), "a slot was rung twice, or early"


def test_a_slot_is_never_rung_before_it_has_come(alarm: Callable[..., AlarmClock], found: list[datetime]) -> None:
    """A ring that comes early finds no slot due, and that slot would wait for the next pass."""
    clock.set_night(Night(origin=ORIGIN, anchor=datetime.now(UTC), rate=240.3))
    rung: list[datetime] = []
    alarm([entry("minutes", cron="* * * * *")], lambda _: rung.append(clock.now()))
    wait_until(lambda: len(rung) >= 4)
    assert all(at >= slot for at, slot in zip(rung, found, strict=False)), f"rung before its slot: {rung}"


def test_real_time_rings_within_a_fraction_of_its_slot(alarm: Callable[..., AlarmClock]) -> None:
    rung: list[datetime] = []
    alarm([entry("seconds", every=timedelta(seconds=1))], lambda _: rung.append(datetime.now(UTC)))
    wait_until(lambda: len(rung) >= 3)
    seconds = [instant.replace(microsecond=0) for instant in rung]
    assert seconds == [seconds[0] + timedelta(seconds=number) for number in range(len(rung))]
    assert all(instant.microsecond < 700_000 for instant in rung)


def test_an_entry_with_jitter_rings_when_its_slot_is_due(alarm: Callable[..., AlarmClock]) -> None:
    spread = Entry(
        "spread",
        every=timedelta(seconds=2),
        expires=timedelta(seconds=2),
        jitter=timedelta(seconds=1.9),
        because="a test needs slots",
    )
    rung: list[datetime] = []
    alarm([spread], lambda _: rung.append(datetime.now(UTC)))
    wait_until(lambda: len(rung) >= 2)
    late = [(instant - datetime(2026, 1, 1, tzinfo=UTC)) % timedelta(seconds=2) - offset(spread) for instant in rung]
    assert offset(spread) > timedelta(milliseconds=100)
    assert all(timedelta(0) <= one < timedelta(seconds=0.7) for one in late), late


def test_a_ring_that_raises_silences_neither_itself_nor_the_others(alarm: Callable[..., AlarmClock]) -> None:
    rung: Counter[str] = Counter()

    def ring(name: str) -> None:
        rung[name] += 1
        if name == "bad":
            raise RuntimeError("the beat is not listening")

    clock.set_night(Night(origin=ORIGIN, anchor=datetime.now(UTC), rate=240))
    alarm([entry("bad", cron="* * * * *"), entry("good", cron="* * * * *")], ring)
    wait_until(lambda: rung["bad"] >= 3 and rung["good"] >= 3)


def test_a_trigger_that_raises_once_is_said_and_its_entry_goes_on(
    alarm: Callable[..., AlarmClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.set_night(Night(origin=ORIGIN, anchor=datetime.now(UTC), rate=5))  # a slot is a fifth of a second
    rung: Counter[str] = Counter()
    broken: list[str] = []

    def breaking(entry: Entry, after: datetime) -> datetime | None:
        if entry.name == "bad" and rung["bad"] and not broken:
            broken.append(entry.name)
            raise ZoneInfoBroke("the zone's file was replaced half-way")
        return next_slot(entry, after)

    monkeypatch.setattr(alarms, "next_slot", breaking)
    with capture_logs() as logs:
        alarm([entry(name, every=timedelta(seconds=1)) for name in ("bad", "good")], lambda name: rung.update([name]))
        wait_until(lambda: broken and rung["bad"] >= 4 and rung["good"] >= 4)
    assert [line["entry"] for line in logs if line["event"] == "trigger_broke"] == ["bad"]


class ZoneInfoBroke(Exception):
    """Raised when a test wants a trigger to fail."""


def test_an_entry_without_a_next_slot_is_asked_again_instead_of_being_dropped(
    alarm: Callable[..., AlarmClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """APScheduler removes a job whose trigger has nothing more to say."""
    clock.set_night(Night(origin=ORIGIN, anchor=datetime.now(UTC), rate=5))  # a slot is a fifth of a second
    asked: list[str] = []

    def silent_once(entry: Entry, after: datetime) -> datetime | None:
        asked.append(entry.name)
        return None if len(asked) == 2 else next_slot(entry, after)

    monkeypatch.setattr(alarms, "next_slot", silent_once)
    monkeypatch.setattr(alarms, "_WHERE_NO_SLOT_COMES", timedelta(seconds=1))
    rung: list[str] = []
    alarm([entry("seconds", every=timedelta(seconds=1))], rung.append)
    wait_until(lambda: len(asked) > 4 and len(rung) > 3)


class FaultyStore(MemoryJobStore):  # type: ignore[misc]
    """Raises at each of its calls once, after the first few turns."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def _fail_once(self, call: str) -> None:
        self.calls[call] += 1
        if self.calls[call] == 4:
            raise OSError(f"the store failed at {call}")

    def get_due_jobs(self, now: datetime) -> object:
        self._fail_once("get_due_jobs")
        return super().get_due_jobs(now)

    def update_job(self, job: object) -> None:
        self._fail_once("update_job")
        super().update_job(job)

    def get_next_run_time(self) -> object:
        self._fail_once("get_next_run_time")
        return super().get_next_run_time()


def test_a_store_that_raises_once_is_said_and_every_entry_goes_on(alarm: Callable[..., AlarmClock]) -> None:
    clock.set_night(Night(origin=ORIGIN, anchor=datetime.now(UTC), rate=5))  # a slot is a fifth of a second
    store, rung = FaultyStore(), Counter[str]()
    with capture_logs() as logs:
        made = alarm(
            [entry(name, every=timedelta(seconds=1)) for name in "ab"], lambda name: rung.update([name]), store=store
        )
        wait_until(lambda: min(store.calls.values(), default=0) > 4 and len(store.calls) == 3)
        before = Counter(rung)
        wait_until(lambda: all(rung[name] >= before[name] + 3 for name in "ab"))
    assert len([line for line in logs if line["event"] == "alarm_broke"]) == 2, "APScheduler says the third itself"
    assert made.complaint() is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_died_or_hangs_is_told(alarm: Callable[..., AlarmClock], monkeypatch: pytest.MonkeyPatch) -> None:
    hang = threading.Event()

    def hanging(entry: Entry, after: datetime) -> datetime | None:
        if hang.is_set():
            raise SystemExit  # no fault that anything catches: the thread ends
        return next_slot(entry, after)

    monkeypatch.setattr(alarms, "next_slot", hanging)
    monkeypatch.setattr(alarms, "_SILENT_SECONDS", 3.0)  # that ten are kept is tests/beat/test_beat_process.py's
    made = alarm([entry("seconds", every=timedelta(seconds=1))], lambda _: None)
    wait_until(lambda: not hang.wait(1.5))
    assert made.complaint() is None
    hang.set()
    complaint = wait_until(made.complaint, 5)
    assert "its thread died or hangs" in complaint
    made.stop()  # and does not wait for it


class Hands:
    """A wall clock that a test moves by hand."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


def test_however_many_slots_a_jump_passed_an_entry_rings_once(
    alarm: Callable[..., AlarmClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """APScheduler would count every second of 174 years first."""
    rung: list[float] = []
    hands = Hands()
    monkeypatch.setattr("apscheduler.schedulers.base.datetime", _Datetime(hands))
    now = Now(wall=hands)
    now.heard(datetime.now(UTC).timestamp(), clock.monotonic(), clock.monotonic())
    made = alarm([entry("seconds", every=timedelta(seconds=1))], lambda _: rung.append(clock.monotonic()), now)
    wait_until(lambda: len(rung) >= 2)
    for ahead in (timedelta(days=365 * 174), timedelta(0), timedelta(hours=-1), timedelta(0), timedelta(hours=1)):
        hands.ahead = ahead
        moved = clock.monotonic()
        made.set_again()
        wait_until(lambda moved=moved: rung[-1] > moved and clock.monotonic() > moved + 1.6)
        since = [instant for instant in rung if instant > moved]
        took = clock.monotonic() - moved
        assert len(since) <= took + 2, f"{len(since)} rings in {took:.1f} s after the clock went to {ahead}"


class _Datetime:
    """What APScheduler takes for the class that tells the time."""

    def __init__(self, wall: Callable[[], datetime]) -> None:
        self._wall = wall

    def now(self, zone: object) -> datetime:
        return self._wall()
