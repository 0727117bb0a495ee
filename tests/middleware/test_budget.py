"""A job leaves at its soft budget, its actor's or its lane's, and is a dead letter then."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from fleet import Budget, deadline, queue

SHORT = Budget(timedelta(milliseconds=200), timedelta(seconds=5), because="a test waits for its end")
LONG = Budget(timedelta(seconds=30), timedelta(seconds=60), because="the other one is the one that ends")


def spin(seconds: float = 5) -> None:
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
    assert time.monotonic() - started < 3
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
    house.until_idle(5)
    assert len(house.dead()) == 1


def test_an_actor_that_declares_errors_of_its_own_as_final_still_dies_of_its_budget_once(house: Any) -> None:
    tries: list[int] = []

    @queue("work").actor(budget=SHORT, throws=(KeyError,))
    def endless() -> None:
        tries.append(1)
        spin()

    endless.send()
    house.work()
    house.until_idle(5)
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
    house.until_idle(5)
    next_one.send_many((number,) for number in range(20))
    house.until_idle(10)
    assert sorted(ran) == list(range(20)) and len(house.dead()) == 2
