"""The beat's ordinary pass begins the chains that are allowed and not there, behind the slots."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import redis

from beat.leader import Leader
from beat.seeding import Seeding
from fleet import wire
from fleet.broker import FleetBroker, keys
from fleet.broker.connection import client_from
from fleet.chains import living
from tests.beat.test_balancing import ELASTIC
from tests.fleet.elastic_house import it_is, tonight
from tests.waiting import wait_until


class Slots:
    """The pass over the slots, counted."""

    def __init__(self) -> None:
        self.passes: list[Iterable[str] | None] = []

    def pass_over(self, names: Iterable[str] | None = None) -> None:
        self.passes.append(names)


@pytest.fixture
def slots() -> Slots:
    return Slots()


@pytest.fixture
def seeding(broker: FleetBroker, leader: Leader, redis_url: str, slots: Slots, real_time_afterwards: None) -> Seeding:
    return Seeding(slots, broker, client_from(redis_url), leader, [ELASTIC])


def lease(client: redis.Redis, broker: FleetBroker, places: int, backlog: int | None) -> None:
    told = {"places": places, "reason": "calm", "until": wire.to_ms(tonight(5)), "backlog": backlog}
    client.set(keys.allowance(broker.namespace, ELASTIC.name), json.dumps(told))


def test_where_nobody_decides_it_seeds_from_the_slot_to_the_day(seeding: Seeding, broker: FleetBroker) -> None:
    for at, chains in (((3, 59), []), ((4, 0), [0, 1, 2, 3])):
        it_is(*at)
        seeding.pass_over()
        assert living(broker, ELASTIC) == chains


def test_it_seeds_what_the_balancer_allows_at_once_when_that_grows(
    seeding: Seeding, broker: FleetBroker, redis_client: redis.Redis
) -> None:
    it_is(1)
    for places in (1, 3):
        lease(redis_client, broker, places, backlog=10)
        seeding.pass_over()
        assert living(broker, ELASTIC) == list(range(places))


def test_an_entry_of_which_the_balancer_saw_nothing_left_is_not_seeded(
    seeding: Seeding, broker: FleetBroker, redis_client: redis.Redis
) -> None:
    it_is(1)
    lease(redis_client, broker, 4, backlog=0)
    seeding.pass_over()
    assert living(broker, ELASTIC) == []


def test_a_chain_that_ended_is_begun_again_in_the_next_minute_and_not_before(
    seeding: Seeding, broker: FleetBroker, redis_client: redis.Redis
) -> None:
    it_is(4)
    seeding.pass_over()
    redis_client.delete(keys.queue(broker.namespace, "work"), keys.bodies(broker.namespace, "work"))
    seeding.pass_over()
    assert living(broker, ELASTIC) == []
    it_is(4, 1, 1)
    seeding.pass_over()
    assert living(broker, ELASTIC) == [0, 1, 2, 3]


def test_a_chain_that_ended_is_begun_again_also_where_the_wall_clock_was_set_back(
    seeding: Seeding, broker: FleetBroker, redis_client: redis.Redis
) -> None:
    it_is(4)
    lease(redis_client, broker, 4, backlog=10)
    seeding.pass_over()
    redis_client.delete(keys.queue(broker.namespace, "work"), keys.bodies(broker.namespace, "work"))
    it_is(3)
    seeding.pass_over()
    assert living(broker, ELASTIC) == [0, 1, 2, 3]


def test_who_does_not_lead_seeds_nothing_and_neither_does_a_ring(
    seeding: Seeding, broker: FleetBroker, leader: Leader, slots: Slots
) -> None:
    it_is(4)
    seeding.pass_over(["tick"])
    leader.resign()
    wait_until(lambda: not leader.leads())
    seeding.pass_over()
    assert living(broker, ELASTIC) == []
    assert slots.passes == [["tick"], None]


def test_seeds_that_fail_are_said_once_and_slots_go_on(
    broker: FleetBroker,
    leader: Leader,
    slots: Slots,
    redis_client: redis.Redis,
    real_time_afterwards: None,
    redis_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    it_is(4)
    seeding = Seeding(slots, broker, client_from(redis_url), leader, [ELASTIC])
    redis_client.set(keys.chains(broker.namespace, ELASTIC.name), "no hash")
    for second in range(3):
        it_is(4, 2 * second)
        seeding.pass_over()
    assert len(slots.passes) == 3
    assert capsys.readouterr().out.count("chains_not_seeded") == 1
    redis_client.delete(keys.chains(broker.namespace, ELASTIC.name))
    it_is(4, 10)
    seeding.pass_over()
    assert living(broker, ELASTIC) == [0, 1, 2, 3]


def test_an_entry_whose_queue_is_broken_keeps_no_other_from_its_chains_and_is_tried_at_the_next_pass(
    broker: FleetBroker,
    leader: Leader,
    slots: Slots,
    redis_client: redis.Redis,
    real_time_afterwards: None,
    redis_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    it_is(4)
    other = replace(ELASTIC, name="read")
    seeding = Seeding(slots, broker, client_from(redis_url), leader, [ELASTIC, other])
    redis_client.set(keys.chains(broker.namespace, ELASTIC.name), "no hash")
    for _ in range(3):
        seeding.pass_over()
    assert living(broker, other) == [0, 1, 2, 3]
    said = capsys.readouterr().out
    assert said.count("chains_not_seeded") == 1
    assert ELASTIC.name in said
    redis_client.delete(keys.chains(broker.namespace, ELASTIC.name))
    seeding.pass_over()
    assert living(broker, ELASTIC) == [0, 1, 2, 3]


def test_a_slots_pass_that_raises_is_heard_by_whoever_fires(
    seeding: Seeding, slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(names: Any = None) -> None:
        raise redis.ConnectionError("Redis is away")

    monkeypatch.setattr(slots, "pass_over", away)
    with pytest.raises(redis.ConnectionError):
        seeding.pass_over()
