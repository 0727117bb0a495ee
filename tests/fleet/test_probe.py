"""What stands in a queue, counted from the keys that stock Dramatiq writes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest
import redis
from dramatiq import Message
from dramatiq.brokers.redis import RedisBroker

from fleet import probe
from fleet.broker import FleetBroker, keys
from fleet.clock import Night, clock
from fleet.settings import Settings


@pytest.fixture
def stock(redis_url: str, namespace: str) -> Iterator[RedisBroker]:
    broker = RedisBroker(url=redis_url, namespace=namespace)
    broker.declare_queue("post")
    yield broker
    broker.close()


@pytest.fixture
def ours(redis_url: str, namespace: str) -> Iterator[FleetBroker]:
    broker = FleetBroker(lambda: Settings(redis_url=redis_url, namespace=namespace))
    yield broker
    broker.client.connection_pool.disconnect()


def letter(age: timedelta = timedelta(0)) -> Message[None]:
    sent = int((clock.real_now() - age).timestamp() * 1000)
    options = {"redis_message_id": str(uuid.uuid4())}
    return Message("post", "deliver", (), {}, options, message_timestamp=sent)


def reading(broker: FleetBroker) -> probe.QueueReading:
    (found,) = probe.read(broker, ["post"])
    return found


def test_a_queue_that_was_never_used_is_all_zeros(ours: FleetBroker) -> None:
    assert reading(ours) == probe.QueueReading("post", 0, 0, 0, 0, None, dead_growth=0, consumers=0)


def test_waiting_held_delayed_and_dead_messages_are_told_apart(stock: RedisBroker, ours: FleetBroker) -> None:
    for _ in range(4):
        stock.enqueue(letter())
    stock.enqueue(letter(), delay=60_000)
    consumer = stock.consume("post", prefetch=2, timeout=100)
    held = [next(consumer), next(consumer)]
    assert all(held)
    seen = reading(ours)
    assert (seen.ready, seen.in_flight, seen.delayed, seen.dead, seen.left) == (2, 2, 1, 0, 5)
    consumer.nack(held[0])  # type: ignore[arg-type]  # checked above
    consumer.ack(held[1])  # type: ignore[arg-type]
    seen = reading(ours)
    assert (seen.ready, seen.in_flight, seen.delayed, seen.dead, seen.left) == (2, 0, 1, 1, 3)
    consumer.close()


def test_a_suspect_waits_like_others(stock: RedisBroker, ours: FleetBroker) -> None:
    stock.enqueue(letter())
    ours.client.lmove(keys.queue(ours.namespace, "post"), keys.suspects(ours.namespace, "post"))
    (reading,) = probe.read(ours, ["post"])
    assert (reading.ready, reading.in_flight) == (1, 0)


def test_the_age_is_that_of_the_oldest_of_the_first_waiting_messages(stock: RedisBroker, ours: FleetBroker) -> None:
    stock.enqueue(letter(age=timedelta(minutes=3)))
    stock.enqueue(letter(age=timedelta(minutes=9)))
    age = reading(ours).oldest_age
    assert age is not None and timedelta(minutes=9) <= age < timedelta(minutes=10)


def test_in_a_compressed_night_the_age_is_night_time(stock: RedisBroker, ours: FleetBroker) -> None:
    stock.enqueue(letter(age=timedelta(minutes=1)))
    clock.set_night(Night(clock.real_now(), clock.real_now(), 60.0))
    try:
        age = reading(ours).oldest_age
    finally:
        clock.set_night(None)
    assert age is not None and timedelta(hours=1) <= age < timedelta(hours=2)


def test_a_message_from_the_future_has_no_negative_age(stock: RedisBroker, ours: FleetBroker) -> None:
    stock.enqueue(letter(age=timedelta(minutes=-5)))
    assert reading(ours).oldest_age == timedelta(0)


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"{}", b'{"message_timestamp": null}', b'{"message_timestamp": 1e99}', b"[]"]
)
def test_a_body_that_cannot_be_read_does_not_stop_the_alarm(
    ours: FleetBroker, redis_client: redis.Redis, namespace: str, body: bytes
) -> None:
    redis_client.rpush(keys.queue(namespace, "post"), "broken")
    redis_client.hset(keys.bodies(namespace, "post"), "broken", body)
    assert (reading(ours).ready, reading(ours).oldest_age) == (1, None)


def test_queues_come_in_order_of_their_name_and_no_queue_is_no_answer(ours: FleetBroker) -> None:
    assert [found.queue for found in probe.read(ours, ["b", "a"])] == ["a", "b"]
    assert probe.read(ours, []) == []
