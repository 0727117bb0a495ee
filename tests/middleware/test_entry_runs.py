"""Each run of an entry's message is written down as it begins and as it ends; nothing else is."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dramatiq import Message
from dramatiq.middleware import Shutdown
from hypothesis import given
from hypothesis import strategies as st

from fleet import Budget, Retry, entry_runs, queue, wire
from fleet.broker import keys
from fleet.clock import Night, clock
from fleet.entry_runs import Run, durations, settled
from fleet.errors import RetryLater
from tests.middleware.slot_rows import rows
from tests.waiting import wait_until

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
ONCE = Retry(attempts=1, first=SECOND, longest=SECOND)
SHORT = Budget(timedelta(milliseconds=100), timedelta(seconds=5), because="a test waits for its end")
THEN = datetime(2026, 3, 2, 1, tzinfo=UTC)


def send_slot(house: Any, actor: Any, slot: datetime | None = None, **options: Any) -> Message[Any]:
    """As the beat does."""
    at = wire.to_ms(slot or clock.now())
    given = {wire.ENTRY: "nightly", wire.SLOT: at, wire.EXPIRES_AT: at + 3_600_000, **options}
    return house.broker.enqueue(actor.message_with_options(**given))


def runs_of(house: Any, entry: str = "nightly") -> list[Run]:
    return entry_runs.read(house.broker, entry)


def ended(house: Any, count: int = 1) -> list[Run]:
    return wait_until(lambda: (found := runs_of(house)) and len(found) == count and found[-1].ended and found)


def test_a_run_is_known_while_it_goes_and_whole_once_it_ended(house: Any) -> None:
    go_on = threading.Event()
    message = send_slot(house, queue("work").actor(name="job")(lambda: go_on.wait(10)), THEN, expires_at=None)
    house.work()
    [run] = wait_until(lambda: runs_of(house))
    assert (run.entry, run.message_id, run.slot, run.attempt) == ("nightly", message.message_id, THEN, 1)
    assert (run.ended, run.outcome, run.took) == (None, None, None)
    assert run.worker == house.broker.broker_id
    assert run.until - run.started == 40 * SECOND, "the lane's hard budget"
    go_on.set()
    [whole] = ended(house)
    assert (whole.id, whole.outcome, whole.started) == (run.id, "done", run.started)
    assert whole.took is not None and timedelta(0) <= whole.took < 10 * SECOND


def test_each_try_is_a_run_of_its_own_with_its_number(house: Any) -> None:
    tries: list[int] = []

    def third_time_lucky() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise RetryLater("429", after=timedelta(milliseconds=10))

    send_slot(house, queue("work").actor(name="job")(third_time_lucky))
    house.work()
    assert [(run.attempt, run.outcome) for run in ended(house, 3)] == [(1, "retried"), (2, "retried"), (3, "done")]


def test_a_dead_letter_says_whether_it_failed_or_its_budget_ended(house: Any) -> None:
    def fail() -> None:
        raise ValueError("a bad day")

    def endless() -> None:
        while True:
            threading.Event().wait(0.005)

    send_slot(house, queue("work").actor(name="job", retry=ONCE)(fail))
    house.work()
    ended(house)
    send_slot(house, queue("work").actor(name="endless", budget=SHORT)(endless))
    assert [run.outcome for run in ended(house, 2)] == ["failed", "deadline"]


def test_a_message_that_expired_is_a_run_that_ended_as_it_began(house: Any) -> None:
    send_slot(house, queue("work").actor(name="job")(lambda: None), **{wire.EXPIRES_AT: 10**12})
    house.work()
    [run] = ended(house)
    assert (run.outcome, run.took) == ("expired", timedelta(0))


def test_a_run_that_a_shutdown_ends_goes_back_and_says_so(house: Any) -> None:
    runs: list[int] = []

    def interrupted_once() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise Shutdown

    send_slot(house, queue("work").actor(name="job")(interrupted_once))
    house.work()
    assert [(run.attempt, run.outcome) for run in ended(house, 2)] == [(1, "returned"), (1, "done")]


def test_what_a_person_had_fired_is_a_run_without_a_slot_and_what_is_no_entrys_is_none(house: Any) -> None:
    job = queue("work").actor(name="job")(lambda: None)
    job.send()
    send_slot(house, job, **{wire.LOST: "it ends for another"})
    house.broker.enqueue(job.message_with_options(**{wire.ENTRY: "nightly"}))
    house.work()
    house.until_idle()
    assert [run.slot for run in ended(house)] == [None]


def test_a_chunk_is_written_as_it_ends_with_the_number_of_its_chain(house: Any) -> None:
    go_on, began = threading.Event(), threading.Event()
    job = queue("work").actor(name="job")(lambda: (began.set(), go_on.wait(10))[1])
    house.broker.enqueue(job.message_with_options(**{wire.ENTRY: "nightly", wire.CHAIN: 2}))
    house.work()
    assert began.wait(10)
    assert runs_of(house) == []
    go_on.set()
    assert [(run.slot, run.chain, run.outcome) for run in ended(house)] == [(None, 2, "done")]


def test_a_message_that_waits_for_its_slot_is_no_run_until_it_has_it(recorded: Any) -> None:
    first, second = threading.Event(), threading.Event()
    events = [first, second]
    job = queue("work").actor(name="job")(lambda: events.pop(0).wait(10))
    send_slot(recorded, job, THEN, nonce="one", expires_at=None)
    recorded.work()
    wait_until(lambda: rows() and not events[1:])
    send_slot(recorded, job, THEN, nonce="two", expires_at=None)
    wait_until(lambda: recorded.broker.client.zcard(keys.due(recorded.broker.namespace, "work")))
    assert len(runs_of(recorded)) == 1
    first.set()
    assert sorted(run.outcome or "" for run in ended(recorded, 2)) == ["discarded", "done"]


def test_a_redis_that_refuses_the_record_costs_the_job_nothing(house: Any) -> None:
    house.broker.client.set(keys.entry_runs(house.broker.namespace, "nightly"), "of another type")
    ran: list[int] = []
    send_slot(house, queue("work").actor(name="job")(lambda: ran.append(1)))
    house.work()
    house.until_idle()
    assert ran == [1] and house.dead() == []


def test_a_played_nights_runs_are_in_its_time_and_kept_for_five_of_its_weeks(house: Any) -> None:
    clock.set_night(Night(origin=THEN, anchor=datetime.now(UTC), rate=1_000.0))
    send_slot(house, queue("work").actor(name="job")(lambda: None))
    house.work()
    [run] = ended(house)
    assert THEN <= run.started <= clock.now() < THEN + timedelta(days=2)
    kept = house.broker.client.pttl(keys.entry_runs(house.broker.namespace, "nightly"))
    assert 0 < kept <= 35 * 86_400


def test_only_runs_that_had_not_ended_by_then_are_read(house: Any) -> None:
    now = clock.now()
    for number, (began, until) in enumerate([(-50, -40), (-30, -20), (-29, None)]):
        over = None if until is None else now + until * MINUTE
        run = Run("nightly", f"r{number}", "m", None, 1, "w", now + began * MINUTE, now + 5 * MINUTE, over, "done")
        entry_runs.write(house.broker, run)
    assert [run.id for run in entry_runs.read(house.broker, "nightly", since=now - 25 * MINUTE)] == ["r1", "r2"]


def test_a_line_that_cannot_be_read_hides_no_other(house: Any) -> None:
    house.broker.client.xadd(keys.entry_runs(house.broker.namespace, "nightly"), {"id": "of another version"})
    send_slot(house, queue("work").actor(name="job")(lambda: None))
    house.work()
    assert [run.outcome for run in ended(house)] == ["done"]


def run(
    id: str, started: float, ended: float | None = None, until: float = 60, message: str = "m", how: str = "done"
) -> Run:
    over = None if ended is None else THEN + ended * MINUTE
    outcome = None if ended is None else how
    return Run("e", id, message, THEN, 1, "w", THEN + started * MINUTE, THEN + until * MINUTE, over, outcome)


def test_a_run_without_an_end_is_lost_once_its_budget_is_over_or_its_message_ran_again() -> None:
    begun, again, other = run("a", 0), run("b", 10), run("c", 5, message="other")
    assert [one.outcome for one in settled([begun], THEN + 59 * MINUTE)] == [None]
    first, third, second = settled([again, other, begun], THEN + 20 * MINUTE)
    assert (first.id, first.outcome, first.ended) == ("a", "lost", THEN + 10 * MINUTE)
    assert [one.outcome for one in (second, third)] == [None, None]
    assert settled([begun], THEN + 61 * MINUTE)[0].ended == THEN + 60 * MINUTE


def test_durations_are_of_runs_that_came_to_an_end() -> None:
    assert durations([run("a", 0), run("b", 0, 9, how="retried"), run("c", 0, 9, how="lost")]) is None
    found = durations([run("x", 0, 9, how="failed"), *(run(str(n), 0, n) for n in range(1, 101))])
    assert found == entry_runs.Durations(100, 50 * MINUTE, 95 * MINUTE, 100 * MINUTE)


@given(st.lists(st.integers(0, 10_000), min_size=1))
def test_the_ranks_of_durations_are_durations_that_were_seen_and_in_order(seconds: list[int]) -> None:
    found = durations(run(str(n), 0, each / 60) for n, each in enumerate(seconds))
    assert found is not None
    assert found.p50 <= found.p95 <= found.longest
    assert {found.p50, found.p95} <= {THEN + each / 60 * MINUTE - THEN for each in seconds}


@pytest.mark.parametrize("name", ["", "x" * 201, 7])
def test_what_cannot_be_an_entrys_name_is_recorded_under_none(house: Any, name: object) -> None:
    send_slot(house, queue("work").actor(name="job")(lambda: None), entry=name)
    house.work()
    house.until_idle()
    assert [*house.broker.client.scan_iter(f"{house.broker.namespace}:fleet:entry-runs:*")] == []
