"""What stands in a queue, counted from the keys that stock Dramatiq writes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from dramatiq import Message
from dramatiq.brokers.redis import RedisBroker

from fleet import flow, probe
from fleet.broker import FleetBroker, keys
from fleet.clock import Night, clock
from fleet.settings import Settings
from tests.broker.proxy import Proxy


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


def push(client: redis.Redis, namespace: str, body: bytes, id: str = "pushed") -> None:
    client.rpush(keys.queue(namespace, "post"), id)
    client.hset(keys.bodies(namespace, "post"), id, body)


def between(age: timedelta | None, low: float, high: float) -> bool:
    """By minutes."""
    return age is not None and timedelta(minutes=low) <= age < timedelta(minutes=high)


def test_a_delayed_message_has_no_age_before_it_is_due(stock: RedisBroker, ours: FleetBroker) -> None:
    ours.declare_queue("post")
    ours.enqueue(letter(age=timedelta(hours=2)), delay=60_000)
    stock.enqueue(letter(age=timedelta(hours=2)), delay=60_000)
    seen = reading(ours)
    assert (seen.delayed, seen.ready, seen.oldest_age) == (2, 0, None)


def test_an_overdue_delayed_message_ages_from_when_it_was_due(ours: FleetBroker) -> None:
    """Nobody is there to promote it, and it is no younger for that."""
    ours.declare_queue("post")
    message = ours.enqueue(letter(age=timedelta(hours=2)), delay=60_000)
    due = (clock.real_now() - timedelta(minutes=7)).timestamp() * 1000
    ours.client.zadd(keys.due(ours.namespace, "post"), {message.options["redis_message_id"]: due})
    assert between(reading(ours).oldest_age, 7, 8)


def test_an_overdue_message_in_stocks_delay_queue_ages_from_its_eta(stock: RedisBroker, ours: FleetBroker) -> None:
    stock.enqueue(letter(age=timedelta(hours=2)), delay=-7 * 60_000)
    seen = reading(ours)
    assert seen.delayed == 1
    assert between(seen.oldest_age, 7, 8)


def test_a_message_whose_delay_is_over_ages_from_then_and_not_from_its_sending(
    ours: FleetBroker, redis_client: redis.Redis, namespace: str
) -> None:
    minutes_ago = int((clock.real_now() - timedelta(minutes=3)).timestamp() * 1000)
    retried = letter(age=timedelta(hours=9)).copy(options={"due_at": minutes_ago})
    push(redis_client, namespace, retried.encode())
    assert between(reading(ours).oldest_age, 3, 4)


def test_a_delayed_message_carries_when_it_is_due_and_one_at_once_does_not(ours: FleetBroker) -> None:
    ours.declare_queue("post")
    now = clock.real_now().timestamp() * 1000
    delayed = ours.enqueue(letter(), delay=60_000)
    assert 59_000 < delayed.options["due_at"] - now < 70_000
    assert "due_at" not in ours.enqueue(letter()).options


@pytest.mark.parametrize("encoded", [3_000, 900_000])
def test_a_large_body_is_not_read_whole_and_tells_its_age_all_the_same(
    ours: FleetBroker, redis_client: redis.Redis, namespace: str, encoded: int
) -> None:
    sent = int((clock.real_now() - timedelta(minutes=30)).timestamp() * 1000)
    due = int((clock.real_now() - timedelta(minutes=3)).timestamp() * 1000)
    text = '{"message_timestamp":1}' * (encoded // 23)
    large = Message("post", "deliver", (text,), {"message_timestamp": 5}, {"redis_message_id": "x"}, "id", sent)
    push(redis_client, namespace, large.encode())
    assert between(reading(ours).oldest_age, 30, 31)
    redis_client.hset(keys.bodies(namespace, "post"), "pushed", large.copy(options={"due_at": due}).encode())
    assert between(reading(ours).oldest_age, 3, 4)


def test_a_body_that_cannot_be_read_does_not_hide_the_age_of_the_next(
    stock: RedisBroker, ours: FleetBroker, redis_client: redis.Redis, namespace: str
) -> None:
    push(redis_client, namespace, b"\xff\x00 not json")
    redis_client.rpush(keys.queue(namespace, "post"), "without-a-body")
    stock.enqueue(letter(age=timedelta(minutes=9)))
    assert between(reading(ours).oldest_age, 9, 10)


def test_the_age_of_a_suspect_counts(stock: RedisBroker, ours: FleetBroker) -> None:
    stock.enqueue(letter(age=timedelta(minutes=9)))
    ours.client.lmove(keys.queue(ours.namespace, "post"), keys.suspects(ours.namespace, "post"))
    stock.enqueue(letter(age=timedelta(minutes=2)))
    assert between(reading(ours).oldest_age, 9, 10)


@pytest.mark.parametrize("place", range(7))
def test_a_key_of_another_type_is_named_and_hides_neither_other_figures_nor_other_queues(
    stock: RedisBroker, ours: FleetBroker, redis_client: redis.Redis, namespace: str, place: int
) -> None:
    stock.declare_queue("other")
    stock.enqueue(letter(age=timedelta(minutes=9)).copy(queue_name="other"))
    stock.enqueue(letter(age=timedelta(minutes=9)))
    spoilt = keys.of_probing(namespace, "post")[place]
    redis_client.delete(spoilt)
    redis_client.set(spoilt, "somebody wrote over it")
    other, post = probe.read(ours, ["post", "other"])
    assert (other.ready, other.broken) == (1, None)
    assert between(other.oldest_age, 9, 10)
    assert post.broken is not None
    assert post.broken.startswith(f"{spoilt}: WRONGTYPE")
    assert post.ready == (0 if spoilt == keys.queue(namespace, "post") else 1)


@pytest.mark.parametrize("key", [keys.history, keys.heartbeats, keys.workers, keys.prefetched])
def test_what_all_queues_have_in_common_may_be_broken_too(
    stock: RedisBroker, ours: FleetBroker, redis_client: redis.Redis, namespace: str, key: Callable[[str], str]
) -> None:
    stock.enqueue(letter())
    redis_client.delete(key(namespace))
    redis_client.set(key(namespace), "somebody wrote over it")
    assert (reading(ours).ready, reading(ours).broken) == (1, None)


def test_a_broken_hash_of_counts_hides_its_own_minute_alone(
    ours: FleetBroker, redis_client: redis.Redis, namespace: str
) -> None:
    minute = flow.minute_of(clock.now())
    redis_client.set(keys.flow(namespace, minute), "somebody wrote over it", ex=60)
    redis_client.hset(keys.flow(namespace, minute - 1), "q:post:ended", 10)
    assert reading(ours).rate_out is not None


def test_dead_letters_are_new_for_ten_minutes_whatever_was_requeued_meanwhile(
    ours: FleetBroker, redis_client: redis.Redis, namespace: str
) -> None:
    now = clock.real_now().timestamp() * 1000
    ages = {"new": 5, "newer": 1, "old": 11, "older": 3_000}
    redis_client.zadd(keys.dead(namespace, "post"), {id: now - age * 60_000 for id, age in ages.items()})
    assert (reading(ours).dead, reading(ours).dead_growth) == (4, 2)
    redis_client.zrem(keys.dead(namespace, "post"), "old", "older")
    assert (reading(ours).dead, reading(ours).dead_growth) == (2, 2)


def test_consumers_are_the_processes_that_serve_a_queue_and_beat_lately(
    ours: FleetBroker, redis_client: redis.Redis, namespace: str
) -> None:
    now = clock.real_now().timestamp() * 1000
    beats = {"one": 0, "two": 10_000, "silent": 45_000, "alone-three": 0, "of-stock": 0, "elsewhere": 0}
    redis_client.zadd(keys.heartbeats(namespace), {id: now - ago for id, ago in beats.items()})
    serving = {id: '["other"]' if id == "elsewhere" else '["post", "other"]' for id in beats if id != "of-stock"}
    redis_client.hset(keys.workers(namespace), mapping=serving)
    assert [found.consumers for found in probe.read(ours, ["post", "other", "third"])] == [3, 2, 0]


def test_lags_and_rates_are_those_of_the_last_minutes(
    ours: FleetBroker, redis_client: redis.Redis, namespace: str
) -> None:
    minute = flow.minute_of(clock.now())
    near, far = flow.bucket(1_000), flow.bucket(100_000)
    counts = {"q:post:started": 100, "q:post:ended": 500, f"q:post:lag.{near}": 90, f"q:post:lag.{far}": 10}
    redis_client.hset(keys.flow(namespace, minute - 1), mapping=counts)
    redis_client.hset(keys.flow(namespace, minute - 7), mapping={"q:post:ended": 10**6})
    seen = reading(ours)
    assert seen.lag_p50 is not None and seen.lag_p95 is not None and seen.lag_worst is not None
    assert timedelta(seconds=0.7) < seen.lag_p50 < timedelta(seconds=1.5)
    assert timedelta(seconds=70) < seen.lag_p95 < seen.lag_worst < timedelta(seconds=150)
    assert seen.rate_out is not None and 100 <= seen.rate_out <= 125
    assert seen.rate_in is None  # no earlier reading to compare with


def test_what_came_is_what_ended_and_by_how_much_more_is_left_than_was(
    stock: RedisBroker, ours: FleetBroker, redis_client: redis.Redis, namespace: str
) -> None:
    now = clock.real_now()
    redis_client.hset(keys.flow(namespace, flow.minute_of(clock.now()) - 1), mapping={"q:post:ended": 100})
    before = int((now - timedelta(minutes=6)).timestamp() * 1000)
    redis_client.xadd(keys.history(namespace), {"queues": json.dumps({"post": [40, 20, 0, 9, None]})}, f"{before}-0")
    for _ in range(6):
        stock.enqueue(letter())
    seen = reading(ours)
    assert seen.rate_out is not None and seen.rate_in is not None
    assert seen.rate_in == pytest.approx(seen.rate_out - 9, abs=0.2)  # 54 fewer in six minutes


def test_where_nothing_counts_nothing_is_known_of_rates_and_lags(stock: RedisBroker, ours: FleetBroker) -> None:
    stock.enqueue(letter())
    seen = reading(ours)
    assert (seen.rate_in, seen.rate_out, seen.lag_p50, seen.lag_p95, seen.lag_worst) == (None,) * 5


def test_all_queues_are_one_round_trip_also_where_the_script_was_never_loaded(
    redis_client: redis.Redis, redis_url: str, namespace: str
) -> None:
    redis_client.script_flush()
    with Proxy(redis_url) as proxy:
        broker = FleetBroker(url=proxy.url, namespace=namespace)
        names = [f"queue-{number}" for number in range(50)]
        assert len(probe.read(broker, names)) == 50
        calls = []
        original = redis.connection.Connection.send_packed_command

        def counting(self: Any, *given: Any, **more: Any) -> Any:
            calls.append(1)
            return original(self, *given, **more)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(redis.connection.Connection, "send_packed_command", counting)
            probe.read(broker, names)
        broker.client.connection_pool.disconnect()
    assert len(calls) == 1


def test_the_probe_writes_nothing(stock: RedisBroker, ours: FleetBroker, redis_client: redis.Redis) -> None:
    stock.enqueue(letter(), delay=-60_000)
    before = sorted(redis_client.keys(f"{ours.namespace}:*"))
    reading(ours)
    assert sorted(redis_client.keys(f"{ours.namespace}:*")) == before
