"""A failed job is tried again as its actor, else its lane, says; what is left over is a dead letter."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import dramatiq
import pytest
from dramatiq import Message

from fleet import Retry, queue, wire
from fleet.broker import keys
from fleet.clock import Night, clock
from fleet.errors import RetryLater

NEVER = Retry(attempts=1, first=timedelta(seconds=1), longest=timedelta(seconds=1))


class Tries:
    """When a job was tried; it fails every time."""

    def __init__(self, error: Exception | None = None) -> None:
        self.at: list[float] = []
        self._error = error or ValueError("the bank is shut")

    def job(self) -> None:
        self.at.append(time.monotonic())
        raise self._error

    @property
    def gaps(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.at)]


def test_a_job_that_goes_on_failing_is_a_dead_letter_after_its_lanes_attempts(
    house: Any, counted: Callable[..., float]
) -> None:
    tries = Tries()
    queue("work").actor(tries.job).send()
    house.work()
    house.until_idle()
    assert len(tries.at) == 3
    (dead,) = house.dead()
    assert dead.options["retries"] == 2, "as it stood when the last try began"
    assert "the bank is shut" in dead.options["traceback"]
    assert counted("fleet_messages_total", queue="work", actor="job", outcome="retried") == 2
    assert counted("fleet_messages_total", queue="work", actor="job", outcome="failed") == 1


def test_a_retry_and_its_letter_keep_a_traceback_without_the_arguments_that_are_not_safe(house: Any) -> None:
    def settle(account_id: int, note: str) -> None:
        raise ValueError(f"account {account_id}: no way to settle {note!r}")

    once_more = replace(NEVER, attempts=2, first=timedelta(milliseconds=20), longest=timedelta(milliseconds=20))
    settling = queue("work").actor(name="settle", retry=once_more, safe_args=("account_id",))(settle)
    settling.send(4_711, "Wie mit Erika besprochen")
    house.work()
    house.until_idle()
    (dead,) = house.dead()
    told = "ValueError: account 4711: no way to settle '[removed]'\n"
    assert dead.options["traceback"].endswith(told) and ", in settle\n" in dead.options["traceback"]
    (kept,) = house.broker.client.hvals(keys.dead_details(house.broker.namespace, "work"))
    assert json.loads(kept)["traceback"].endswith(told) and b"Erika" not in kept


def test_an_actors_own_shape_goes_before_its_lanes(house: Any) -> None:
    tries = Tries()
    queue("work").actor(retry=NEVER)(tries.job).send()
    house.work()
    house.until_idle()
    assert len(tries.at) == 1 and len(house.dead()) == 1


@pytest.mark.parametrize("where", ["actor", "message"])
def test_dramatiqs_own_max_retries_goes_before_the_lanes_attempts(house: Any, where: str) -> None:
    tries = Tries()
    if where == "actor":
        queue("work").actor(max_retries=0)(tries.job).send()
    else:
        queue("work").actor(tries.job).send_with_options(max_retries=0)
    house.work()
    house.until_idle()
    assert len(tries.at) == 1 and len(house.dead()) == 1


@pytest.mark.parametrize("found", [None, "many", math.nan, -math.inf, -(10**12), True, [1], {}])
def test_a_count_of_retries_that_is_none_is_one_of_none(house: Any, found: object) -> None:
    tries = Tries()
    queue("work").actor(tries.job).send_with_options(retries=found)
    house.work()
    house.until_idle()
    assert len(tries.at) == 3
    (kept,) = house.broker.client.hvals(keys.dead_details(house.broker.namespace, "work"))
    assert (json.loads(kept)["reason"], json.loads(kept)["attempts"]) == ("failed", 3)


def test_a_count_of_retries_that_is_too_long_to_be_counted_on_is_the_last(house: Any) -> None:
    tries = Tries()
    queue("work").actor(tries.job).send_with_options(retries=10**4_300 - 1)
    house.work()
    house.until_idle()
    assert len(tries.at) == 1 and len(house.dead()) == 1


@pytest.mark.parametrize("found", ["many", math.nan, True, []])
def test_a_max_retries_that_is_no_number_is_not_heard(house: Any, found: object) -> None:
    tries = Tries()
    queue("work").actor(tries.job).send_with_options(max_retries=found)
    house.work()
    house.until_idle()
    assert len(tries.at) == 3 and len(house.dead()) == 1


def test_a_job_that_succeeds_on_its_second_try_leaves_nothing(house: Any) -> None:
    tries: list[int] = []

    @queue("work").actor
    def job() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")

    job.send()
    house.work()
    house.until_idle()
    assert len(tries) == 2 and house.dead() == []


def test_retry_later_waits_as_long_as_it_says_and_uses_up_an_attempt(house: Any) -> None:
    tries = Tries(RetryLater("429", after=timedelta(milliseconds=400)))
    queue("work").actor(tries.job).send()
    house.work()
    house.until_idle()
    assert len(tries.at) == 3 and len(house.dead()) == 1
    assert all(0.4 <= gap < 10 for gap in tries.gaps), f"the lane's shape would have come within 0.1 s: {tries.gaps}"


def test_delays_are_night_durations(house: Any) -> None:
    clock.set_night(Night(origin=datetime(2026, 3, 2, tzinfo=UTC), anchor=datetime.now(UTC), rate=240))
    house.lane(retry=Retry(attempts=2, first=timedelta(minutes=1), longest=timedelta(minutes=2)))
    later, shaped = Tries(RetryLater("429", after=timedelta(minutes=2))), Tries()
    for number, tries in enumerate((later, shaped)):
        queue("work").actor(name=f"job{number}")(tries.job).send()
    house.work()
    house.until_idle()
    assert 0.5 <= later.gaps[0] < 10, "two minutes of the night are half a second"
    assert shaped.gaps[0] < 10, "the lane's first delay is at most two minutes of the night"


def test_a_message_for_an_actor_that_no_worker_knew_for_long_enough_is_a_dead_letter_not_lost(house: Any) -> None:
    """During a deploy a new producer sends what an old worker has not heard of; it waits for a new one first."""
    queue("work").actor(lambda: None, name="known")
    house.broker.enqueue(Message("work", "of_tomorrow", ("treasure",), {}, {wire.LEFT: 1}))
    house.work()
    house.until_idle()
    (dead,) = house.dead()
    assert dead.actor_name == "of_tomorrow" and dead.args == ("treasure",)


def test_stock_dramatiqs_retry_still_sets_its_own_delay(house: Any) -> None:
    tries = Tries(dramatiq.Retry("again", delay=300))
    queue("work").actor(tries.job).send()
    house.work()
    house.until_idle()
    assert len(tries.at) == 3 and all(gap >= 0.3 for gap in tries.gaps)
