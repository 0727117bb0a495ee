"""A job leaves at its soft budget, its actor's or its lane's, and is a dead letter then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from dramatiq import Message
from dramatiq.middleware import AgeLimit, TimeLimit
from structlog.testing import capture_logs

from fleet import Budget, deadline, queue
from fleet.actor import current_message
from fleet.errors import DeclarationInvalid
from middleware.budget import budget_of
from tests.broker.station import stock

SHORT = Budget(timedelta(milliseconds=200), timedelta(seconds=5), because="a test waits for its end")
LONG = Budget(timedelta(seconds=30), timedelta(seconds=60), because="the other one is the one that ends")


def spin(seconds: float = 12) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(0.005)


def test_an_actors_budget_goes_before_its_lanes(house: Any) -> None:
    found: dict[str, timedelta] = {}
    house.lane(budget=LONG)

    def look(name: str) -> None:
        left = deadline.remaining()
        assert left is not None
        found[name] = left

    queue("work").actor(name="own", budget=SHORT)(look).send("own")
    queue("work").actor(name="lanes")(look).send("lanes")
    house.work()
    house.until_idle()
    assert timedelta(0) < found["own"] <= SHORT.soft
    assert timedelta(seconds=20) < found["lanes"] <= LONG.soft


def test_a_job_over_its_lanes_budget_is_a_dead_letter_at_once_and_is_not_tried_again(
    house: Any, counted: Callable[..., float]
) -> None:
    tries: list[float] = []
    house.lane(budget=SHORT)

    @queue("work").actor
    def endless() -> None:
        tries.append(time.monotonic())
        spin()

    endless.send()
    house.work()
    started = time.monotonic()
    house.until_idle()
    assert time.monotonic() - started < 9
    assert len(tries) == 1 and len(house.dead()) == 1
    assert counted("fleet_messages_total", queue="work", actor="endless", outcome="deadline") == 1
    assert counted("fleet_messages_total", queue="work", actor="endless", outcome="retried") == 0


def test_a_job_that_swallows_every_exception_still_ends(house: Any) -> None:
    @queue("work").actor(budget=SHORT)
    def stubborn() -> None:
        for _ in range(100):
            try:
                spin()
            except Exception:
                continue

    stubborn.send()
    house.work()
    house.until_idle()
    assert len(house.dead()) == 1


def test_an_actor_that_declares_errors_of_its_own_as_final_still_dies_of_its_budget_once(house: Any) -> None:
    tries: list[int] = []

    @queue("work").actor(budget=SHORT, throws=(KeyError,))
    def endless() -> None:
        tries.append(1)
        spin()

    endless.send()
    house.work()
    house.until_idle()
    assert len(tries) == 1 and len(house.dead()) == 1


def test_a_thread_whose_job_was_cut_serves_the_next_message_unharmed(house: Any) -> None:
    ran: list[int] = []

    @queue("work").actor(budget=SHORT)
    def endless() -> None:
        spin()

    @queue("work").actor
    def next_one(number: int) -> None:
        spin(0.02)
        ran.append(number)

    for _ in range(2):  # both threads
        endless.send()
    house.work()
    house.until_idle()
    next_one.send_many((number,) for number in range(20))
    house.until_idle()
    assert sorted(ran) == list(range(20)) and len(house.dead()) == 2


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with capture_logs() as logs:
        yield logs


def test_a_stock_producers_time_limit_is_the_soft_budget_and_the_hard_one_keeps_its_distance(
    house: Any, redis_url: str
) -> None:
    lefts: list[timedelta | None] = []

    @queue("work").actor(budget=LONG)
    def look() -> None:
        lefts.append(deadline.remaining())
        message = current_message()
        assert message is not None
        held.append(budget_of(house.broker, message))

    held: list[Any] = []
    producer = stock(redis_url, house.broker.namespace)
    producer.enqueue(Message("work", "look", (), {}, {"time_limit": 7_500}))
    producer.close()
    house.work()
    house.until_idle()
    (left,), (budget,) = lefts, held
    assert left is not None and timedelta(seconds=6) < left <= timedelta(seconds=7.5)
    assert (budget.source, budget.budget.soft) == ("message", timedelta(seconds=7.5))
    assert budget.budget.hard == timedelta(seconds=37.5)


def test_a_job_over_its_messages_time_limit_is_a_dead_letter(house: Any, redis_url: str) -> None:
    @queue("work").actor(budget=LONG)
    def endless() -> None:
        spin()

    producer = stock(redis_url, house.broker.namespace)
    producer.enqueue(Message("work", "endless", (), {}, {"time_limit": 200}))
    producer.close()
    house.work()
    started = time.monotonic()
    house.until_idle()
    assert time.monotonic() - started < 9
    assert len(house.dead()) == 1


WEEK_MS = 7 * 86_400_000


@pytest.mark.parametrize("found", [None, 0, -5, float("inf"), float("nan"), "soon", True, [1], WEEK_MS, 10**400])
def test_a_time_limit_that_is_none_is_said_once_and_the_declared_budget_holds(
    house: Any, lines: list[Any], found: object
) -> None:
    ran: list[timedelta | None] = []
    look = queue("work").actor(budget=LONG, name="look")(lambda: ran.append(deadline.remaining()))
    house.broker.enqueue(look.message_with_options(time_limit=found))
    house.work()
    house.until_idle()
    (left,) = ran
    assert left is not None and timedelta(seconds=20) < left <= LONG.soft
    (said,) = [line for line in lines if line["event"] == "time_limit_ignored"]
    assert (said["holds"], said["soft"]) == ("actor", str(LONG.soft))
    assert house.dead() == []


def test_whose_budget_holds_is_told(house: Any) -> None:
    own = queue("work").actor(budget=SHORT, name="own")(lambda: None).message()
    lanes = queue("work").actor(name="lanes")(lambda: None).message()
    told = [budget_of(house.broker, message) for message in (own, lanes, own.copy(options={"time_limit": 1000}))]
    assert [held and held.source for held in told] == ["actor", "lane", "message"]
    house.broker.lanes = {}
    assert budget_of(house.broker, lanes) is None


@pytest.mark.parametrize("option", ["time_limit", "max_age"])
def test_stock_options_of_middleware_that_is_not_installed_are_refused_with_what_to_say_instead(
    house: Any, option: str
) -> None:
    with pytest.raises(DeclarationInvalid, match=f"there is no {option} here; .*(budget=|expires)"):
        queue("work").actor(**{option: 60_000})
    names = {type(one) for one in house.broker.middleware}
    assert not names & {TimeLimit, AgeLimit}


def test_an_async_actor_ends_at_its_soft_budget(house: Any) -> None:
    cleaned: list[str] = []

    @queue("work").actor(budget=SHORT)
    async def waits() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            cleaned.append("up")

    @queue("work").actor(budget=LONG)
    async def other() -> None:
        await asyncio.sleep(0.6)
        cleaned.append("other")

    waits.send()
    other.send()
    house.work()
    house.until_idle()
    assert cleaned == ["up", "other"]
    assert [message.actor_name for message in house.dead()] == ["waits"]
