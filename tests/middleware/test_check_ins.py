"""A slot's job checks in at its entry's monitor, which is made by what the entry says; nothing else does."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dramatiq import Message

from fleet import Budget, Entry, Retry, queue, wire
from fleet.check_ins import monitor_config, slug
from fleet.clock import Night, clock
from fleet.errors import RetryLater
from tests.middleware.ingest import Ingest

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
ONCE = Retry(attempts=1, first=SECOND, longest=SECOND)
SHORT = Budget(timedelta(milliseconds=100), timedelta(seconds=5), because="a test waits for its end")
NIGHTLY = Entry(
    "nightly_audit",
    cron="10 3 * * *",
    tz="Europe/Berlin",
    expires=2 * HOUR,
    actor="job",
    because="after banks and balances",
)


def send_slot(house: Any, actor: Any, entry: str = "nightly_audit", **options: Any) -> Message[Any]:
    """As the beat does, with a slot that was due a moment ago."""
    slot = wire.to_ms(datetime.now(UTC))
    message = actor.message_with_options(
        **{wire.ENTRY: entry, wire.SLOT: slot, wire.EXPIRES_AT: slot + 3_600_000, **options}
    )
    return house.broker.enqueue(message)


@pytest.fixture
def scheduled(house: Any, ingest: Ingest) -> Ingest:
    house.broker.entries = {"nightly_audit": NIGHTLY}
    return ingest


def statuses(ingest: Ingest) -> list[str]:
    return [one["status"] for one in ingest.check_ins()]


def test_a_job_that_is_done_is_one_check_in_and_its_monitor_is_what_the_entry_says(
    house: Any, scheduled: Ingest
) -> None:
    send_slot(house, queue("work").actor(name="job")(lambda: None))
    house.work()
    house.until_idle()
    house.stop()
    began, ended = scheduled.check_ins()
    assert (began["status"], ended["status"]) == ("in_progress", "ok")
    assert began["check_in_id"] == ended["check_in_id"]
    assert (ended["monitor_slug"], ended["environment"]) == ("nightly_audit", "a-test")
    assert 0 <= ended["duration"] < 5
    assert began["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "10 3 * * *"},
        "timezone": "Europe/Berlin",
        "checkin_margin": 120,
        "max_runtime": 1,
    }


def test_a_failure_that_is_tried_again_stays_one_check_in_in_progress(house: Any, scheduled: Ingest) -> None:
    tries: list[int] = []

    def third_time_lucky() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")
        if len(tries) == 2:
            raise RetryLater("429", after=timedelta(milliseconds=10))

    send_slot(house, queue("work").actor(name="job")(third_time_lucky))
    house.work()
    house.until_idle()
    house.stop()
    assert statuses(scheduled) == ["in_progress", "in_progress", "in_progress", "ok"]
    assert len({one["check_in_id"] for one in scheduled.check_ins()}) == 1


def test_a_dead_letter_is_an_error_whether_it_failed_or_its_budget_ended(house: Any, scheduled: Ingest) -> None:
    def fail() -> None:
        raise ValueError("a bad day")

    def endless() -> None:
        while True:
            threading.Event().wait(0.005)

    send_slot(house, queue("work").actor(name="job", retry=ONCE)(fail))
    house.work()
    house.until_idle()
    send_slot(house, queue("work").actor(name="endless", budget=SHORT)(endless))
    house.until_idle()
    house.stop()
    assert statuses(scheduled) == ["in_progress", "error"] * 2


def test_what_is_no_slot_or_never_began_does_not_check_in(house: Any, scheduled: Ingest) -> None:
    job = queue("work").actor(name="job")(lambda: None)
    job.send()
    house.broker.enqueue(job.message_with_options(**{wire.ENTRY: "nightly_audit"}))  # `fleet fire`: by hand
    send_slot(house, job, **{wire.LOST: "ended for another"})
    send_slot(house, job, **{wire.EXPIRES_AT: 10**12})
    house.work()
    house.until_idle()
    house.stop()
    assert scheduled.check_ins() == []


def test_a_repetition_that_comes_too_late_ends_what_was_in_progress(house: Any, scheduled: Ingest) -> None:
    first = threading.Event()

    def fail() -> None:
        first.set()
        raise RetryLater("the bank says so", after=timedelta(seconds=2))

    slot = wire.to_ms(datetime.now(UTC))
    send_slot(house, queue("work").actor(name="job")(fail), **{wire.EXPIRES_AT: slot + 1_500})
    house.work()
    house.until_idle()
    house.stop()
    assert first.is_set()
    assert statuses(scheduled) == ["in_progress", "error"]
    assert len({one["check_in_id"] for one in scheduled.check_ins()}) == 1


def test_an_entry_that_this_version_does_not_know_leaves_its_monitor_as_it_is(house: Any, scheduled: Ingest) -> None:
    send_slot(house, queue("work").actor(name="job")(lambda: None), "of_tomorrow")
    house.work()
    house.until_idle()
    house.stop()
    assert statuses(scheduled) == ["in_progress", "ok"]
    assert not any("monitor_config" in one for one in scheduled.check_ins())


def test_while_a_night_is_played_nothing_checks_in(house: Any, scheduled: Ingest) -> None:
    clock.set_night(Night(origin=datetime.now(UTC), anchor=datetime.now(UTC), rate=10.0))
    send_slot(house, queue("work").actor(name="job")(lambda: None))
    house.work()
    house.until_idle()
    house.stop()
    assert scheduled.check_ins() == []


def test_a_monitor_that_cannot_be_told_costs_the_job_nothing(
    house: Any, scheduled: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sentry_sdk.crons

    def broken(**_: object) -> None:
        raise OSError("the SDK broke")

    monkeypatch.setattr(sentry_sdk.crons, "capture_checkin", broken)
    ran: list[int] = []
    send_slot(house, queue("work").actor(name="job")(lambda: ran.append(1)))
    house.work()
    house.until_idle()
    assert ran == [1]
    assert house.dead() == []


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({"cron": "*/10 * * * *", "tz": "Asia/Tokyo"}, ({"type": "crontab", "value": "*/10 * * * *"}, "Asia/Tokyo")),
        ({"every": 5 * MINUTE}, ({"type": "interval", "value": 5, "unit": "minute"}, "UTC")),
        ({"every": 6 * HOUR}, ({"type": "interval", "value": 6, "unit": "hour"}, "UTC")),
        ({"every": timedelta(days=14)}, ({"type": "interval", "value": 14, "unit": "day"}, "UTC")),
        ({"every": 90 * MINUTE}, ({"type": "interval", "value": 90, "unit": "minute"}, "UTC")),
    ],
)
def test_a_schedule_in_sentrys_words(when: dict[str, Any], expected: tuple[dict[str, Any], str]) -> None:
    config = monitor_config(Entry("e", expires=MINUTE, because="banks close their day", **when), None, None)
    assert config is not None
    assert (config["schedule"], config["timezone"]) == expected


@pytest.mark.parametrize("when", [{"every": SECOND}, {"every": 90 * SECOND}, {"cron": "0 0 4 * * *"}])
def test_a_schedule_for_which_sentry_has_no_words_has_no_monitor(when: dict[str, Any]) -> None:
    assert monitor_config(Entry("e", expires=SECOND, because="banks close their day", **when), None, None) is None


def test_margin_and_run_time_are_whole_minutes_rounded_up_and_hold_a_retrys_longest_delay() -> None:
    entry = Entry("e", expires=61 * SECOND, every=HOUR, because="banks close their day")
    budget = Budget(MINUTE, 7 * MINUTE, because="two pages at the bank's p99")
    config = monitor_config(entry, budget, Retry(attempts=3, first=SECOND, longest=5 * MINUTE + SECOND))
    assert config is not None
    assert (config["checkin_margin"], config["max_runtime"]) == (2, 13)
    once = monitor_config(entry, budget, ONCE)
    assert once is not None and once["max_runtime"] == 7


def test_a_slug_is_the_name_where_sentry_takes_it_and_two_names_stay_two() -> None:
    assert slug("update_all_transactions") == "update_all_transactions"
    odd = {slug(name) for name in ("Nightly Audit", "nightly audit", "nightly-audit", "a" * 60, "a" * 61)}
    assert len(odd) == 5
    assert all(len(one) <= 50 and one == one.lower() and " " not in one for one in odd)
