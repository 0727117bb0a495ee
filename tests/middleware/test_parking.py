"""A rate limit parks its key for everybody, uses up no attempt, and lets other keys go on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fleet import parking, queue
from fleet.broker import keys
from fleet.clock import Night, clock
from fleet.errors import RetryLater
from tests.waiting import wait_until


def test_a_parked_key_comes_back_without_having_used_an_attempt(house: Any) -> None:
    tries: list[int] = []

    @queue("work").actor
    def sync() -> None:
        tries.append(1)
        if len(tries) < 6:  # twice the lane's three attempts
            raise RetryLater("429", timedelta(milliseconds=20), key="bank 7")

    sync.send()
    house.work()
    wait_until(lambda: len(tries) == 6, 20)
    house.until_idle()
    assert house.dead() == []


def test_while_a_key_is_parked_who_asks_is_told_when_and_other_keys_go_on(house: Any) -> None:
    parking.park(house.broker, "bank 7", timedelta(seconds=30))
    with pytest.raises(RetryLater, match="bank 7 is parked") as told:
        parking.check("bank 7")
    assert timedelta(seconds=28) < told.value.after <= timedelta(seconds=30)
    assert told.value.key == "bank 7"
    parking.check("bank 8")


def test_who_is_told_that_a_key_is_parked_parks_it_for_no_longer(house: Any) -> None:
    # At this pace the 50 real milliseconds below which no parking is are twelve seconds of the night.
    clock.set_night(Night(clock.real_now(), clock.real_now(), 240))
    asked, done = list[int](), list[int]()

    @queue("work").actor
    def sync(number: int) -> None:
        asked.append(number)
        parking.check("bank 7")
        done.append(number)

    house.work()
    sync.send(0)
    wait_until(lambda: done, 20)
    parking.park(house.broker, "bank 7", timedelta(seconds=1))
    for number in range(1, 9):
        sync.send(number)
    wait_until(lambda: len(done) == 9, 20)
    assert len(asked) <= 4 * 8, "somebody who was told parked the key again"


def test_the_later_end_of_two_parkings_wins(house: Any) -> None:
    parking.park(house.broker, "model", timedelta(seconds=30))
    parking.park(house.broker, "model", timedelta(seconds=5))
    assert house.broker.client.pttl(keys.parked(house.broker.namespace, "model")) > 25_000
