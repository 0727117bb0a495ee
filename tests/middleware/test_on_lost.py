"""A job that was cut off ends readably: `on_lost`, its dead letter and its log line say the same sentence."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from dramatiq import Message, Middleware
from dramatiq.middleware import SkipMessage
from structlog.testing import capture_logs

from fleet import Budget, deadline, queue, wire
from fleet.broker import keys
from fleet.clock import clock
from fleet.errors import DeadlineExceeded
from fleet.sweep import sweep

SHORT = Budget(timedelta(milliseconds=300), timedelta(seconds=5), because="a test waits for its end")


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with capture_logs() as logs:
        yield logs


@pytest.fixture
def told() -> list[tuple[str, tuple[Any, ...], str]]:
    """What an `on_lost` was called with: message id, arguments, reason."""
    return []


def spin() -> None:
    ends = time.monotonic() + 10
    while time.monotonic() < ends:
        pass


def letters(house: Any) -> list[dict[str, Any]]:
    found = house.broker.client.hvals(keys.dead_details(house.broker.namespace, "work"))
    return [json.loads(one) for one in found]


def test_a_deadline_inside_a_sweep_at_row_340_of_1772_says_so_everywhere(
    house: Any, lines: list[Any], told: list[Any]
) -> None:
    def row(number: int) -> None:
        try:
            if number == 340:
                spin()
        except Exception:
            pass

    @queue("work").actor(budget=SHORT, on_lost=lambda *lost: told.append(lost))
    def import_rows(name: str) -> None:
        sweep("import_rows", range(1772), row)

    sent = import_rows.send("a.csv")
    house.work()
    house.until_idle()
    ((message, reason),) = told
    assert (message.message_id, message.args, reason) == (sent.message_id, ("a.csv",), "timed out after 340 of 1772")
    (letter,) = letters(house)
    assert letter["reason"] == "deadline" and "timed out after 340 of 1772" in letter["exception"]
    (line,) = [line for line in lines if line["event"] == "job_deadline"]
    assert line["reason"] == "timed out after 340 of 1772"


def test_rows_without_a_length_are_counted(house: Any, told: list[Any]) -> None:
    @queue("work").actor(budget=SHORT, on_lost=lambda message, reason: told.append(reason))
    def endless() -> None:
        sweep("endless", itertools.count(), lambda number: spin() if number == 7 else None)

    endless.send()
    house.work()
    house.until_idle()
    assert told == ["timed out after 7 rows"]


def test_without_progress_it_says_for_how_long_it_ran(house: Any, told: list[Any]) -> None:
    @queue("work").actor(budget=SHORT, on_lost=lambda message, reason: told.append(reason))
    def endless() -> None:
        spin()

    endless.send()
    house.work()
    house.until_idle()
    (said,) = told
    ran = re.fullmatch(r"timed out after (\d\.\d) s", said)
    assert ran and 0.3 <= float(ran[1]) < 9, said


def test_on_lost_is_no_longer_under_the_budget_and_its_failure_changes_nothing(
    house: Any, lines: list[Any], told: list[Any]
) -> None:
    def writes_slowly(message: Message[Any], reason: str) -> None:
        ends = time.monotonic() + 1.5
        while time.monotonic() < ends:
            pass
        told.append(deadline.remaining())
        raise ConnectionError("the database is away")

    @queue("work").actor(budget=SHORT, on_lost=writes_slowly)
    def endless() -> None:
        spin()

    endless.send()
    house.work()
    house.until_idle()
    assert told == [None]
    (letter,) = letters(house)
    assert letter["reason"] == "deadline"
    assert [line["error"] for line in lines if line["event"] == "on_lost_failed"] == [
        "ConnectionError('the database is away')"
    ]


def test_a_job_that_fails_or_ends_by_itself_is_not_lost(house: Any, told: list[Any]) -> None:
    @queue("work").actor(budget=SHORT, max_retries=0, on_lost=lambda *lost: told.append(lost))
    def job(fails: bool) -> None:
        if fails:
            raise ValueError("a bad row")

    job.send(True)
    job.send(False)
    house.work()
    house.until_idle()
    assert told == [] and len(house.dead()) == 1


def test_a_message_that_expires_and_was_never_lost_is_no_lost_job(house: Any, told: list[Any]) -> None:
    job = queue("work").actor(budget=SHORT, on_lost=lambda *lost: told.append(lost), name="job")(lambda: None)
    job.send_with_options(expires_at=wire.to_ms(clock.now() - timedelta(seconds=1)))
    house.work()
    house.until_idle()
    assert told == []


def test_a_message_that_was_lost_with_its_worker_and_then_expires_has_its_row_ended(
    house: Any, told: list[Any], lines: list[Any]
) -> None:
    job = queue("work").actor(budget=SHORT, on_lost=lambda *lost: told.append(lost), name="job")(lambda: None)
    sent = job.send_with_options(expires_at=wire.to_ms(clock.now() - timedelta(seconds=1)))
    losses = keys.losses(house.broker.namespace, "work")
    house.broker.client.hset(losses, sent.options["redis_message_id"], 1)
    house.work()
    house.until_idle()
    ((message, reason),) = told
    assert message.message_id == sent.message_id
    assert re.match(r"its worker was lost, and it did not run again: job expired 0:00:\d\d", reason), reason
    assert house.broker.client.hlen(losses) == 0 and house.dead() == []


def test_a_message_that_was_lost_and_is_refused_for_now_has_its_job_told_nothing(house: Any, told: list[Any]) -> None:
    class NotYet(Middleware):
        def before_process_message(self, broker: Any, message: Any) -> None:
            if "waited" not in message.options:
                broker.enqueue(message.copy(options={"waited": True}), delay=20)
                raise SkipMessage("not yet")

    house.broker.add_middleware(NotYet())
    ran: list[str] = []
    job = queue("work").actor(budget=SHORT, on_lost=lambda *lost: told.append(lost), name="job")(
        lambda: ran.append("ran")
    )
    sent = job.send()
    house.broker.client.hset(keys.losses(house.broker.namespace, "work"), sent.options["redis_message_id"], 1)
    house.work()
    house.until_idle()
    assert (ran, told) == (["ran"], [])


def test_a_message_that_stands_for_a_lost_job_runs_on_lost_instead_of_the_body(house: Any, told: list[Any]) -> None:
    ran: list[str] = []

    def ends_the_row(message: Message[Any], reason: str) -> None:
        left = deadline.remaining()
        assert left is not None and left <= SHORT.soft
        told.append((message.message_id, message.args, message.options.get(wire.LOST), reason))

    def body(name: str) -> None:
        ran.append(name)

    late = wire.to_ms(clock.now() - timedelta(hours=1))  # a slot's job may well be cut off after its window
    for name, on_lost in (("job", ends_the_row), ("without", None)):
        queue("work").actor(budget=SHORT, on_lost=on_lost, name=name)(body)
        options = {wire.LOST: "hard budget", wire.EXPIRES_AT: late}
        house.broker.enqueue(Message("work", name, ("x",), {}, options, message_id="the-job-lost"))
    house.work()
    house.until_idle()
    assert told == [("the-job", ("x",), None, "hard budget")]
    assert ran == [] and house.dead() == []


def test_an_on_lost_that_is_itself_over_its_budget_is_a_dead_letter_and_is_not_called_again(
    house: Any, told: list[Any]
) -> None:
    def endless(message: Message[Any], reason: str) -> None:
        told.append(reason)
        spin()

    job = queue("work").actor(budget=SHORT, on_lost=endless, name="job")(lambda: None)
    house.broker.enqueue(job.message().copy(options={wire.LOST: "hard budget"}))
    house.work()
    house.until_idle()
    assert told == ["hard budget"]
    assert [letter["reason"] for letter in letters(house)] == ["deadline"]


@pytest.mark.parametrize("passes_over", [Exception, BaseException])
def test_a_body_that_catches_what_it_can_ends_in_the_same_state(
    house: Any, told: list[Any], passes_over: type[BaseException]
) -> None:
    """`except Exception` does not get it; a bare `except` gets it, and once more a second later."""

    def job() -> None:
        for _ in range(2):
            try:
                spin()
            except passes_over:
                continue
        spin()

    queue("work").actor(budget=SHORT, on_lost=lambda message, reason: told.append(reason), name="job")(job).send()
    house.work()
    house.until_idle(20)
    (reason,) = told
    assert reason.startswith("timed out after")
    assert [letter["reason"] for letter in letters(house)] == ["deadline"]


def test_a_finally_that_sleeps_runs_to_its_end_and_the_job_is_cut_off(house: Any, told: list[Any]) -> None:
    @queue("work").actor(budget=SHORT, on_lost=lambda message, reason: told.append(reason))
    def job() -> None:
        try:
            spin()
        except DeadlineExceeded:
            told.append("left")
            raise
        finally:
            time.sleep(0.5)
            told.append("slept")

    job.send()
    house.work()
    house.until_idle(20)
    assert told[:2] == ["left", "slept"] and told[2].startswith("timed out after")
