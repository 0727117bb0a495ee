"""Readings as they are taken, stored, read again, and said to be stale."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest
import redis

from fleet import Budget, Lane, Retry, flow, readings, wire
from fleet.broker import FleetBroker, keys
from fleet.clock import Night, clock
from fleet.readings import ActorReading, ExpiredReading, SweepReading
from tests.waiting import wait_until

MAIL = Lane(
    "mail",
    ("post", "parcels"),
    waits_for="a test",
    processes=2,
    threads=4,
    budget=Budget(timedelta(seconds=20), timedelta(seconds=40), because="no job of a test comes near it"),
    retry=Retry(attempts=3, first=timedelta(seconds=1), longest=timedelta(seconds=1)),
)


@pytest.fixture
def broker(redis_url: str, namespace: str) -> Iterator[FleetBroker]:
    made = FleetBroker(url=redis_url, namespace=namespace)
    made.lanes = MappingProxyType(dict.fromkeys(MAIL.queues, MAIL))
    yield made
    made.client.connection_pool.disconnect()
    clock.set_night(None)


def count(broker: FleetBroker, **figures: int) -> None:
    minute = flow.minute_of(clock.now()) - 1
    mapping = {name.replace("__", ":"): figure for name, figure in figures.items()}
    broker.client.hset(keys.flow(broker.namespace, minute), mapping=mapping)


def test_what_is_read_again_is_what_was_taken(broker: FleetBroker, redis_client: redis.Redis, namespace: str) -> None:
    redis_client.rpush(keys.queue(namespace, "post"), "one", "two")
    redis_client.hset(keys.bodies(namespace, "post"), mapping={"one": "", "two": "", "held": ""})
    count(broker, q__post__started=3, q__post__ended=2, **{"q__post__lag.12": 3}, l__mail__cpu_us=60_000_000)
    count(broker, a__sort__jobs=2, a__sort__cpu_us=1_500_000, a__sort__wall_us=3_000_000)
    count(broker, e__nightly__expired=1, s__rows__failed=20)
    taken = readings.take(broker, "beat")
    assert readings.latest(broker) == taken
    post = taken.queues["post"]
    assert (post.ready, post.in_flight, taken.queues["parcels"].ready) == (2, 1, 0)
    assert post.lag_p95 is not None and post.rate_out is not None
    assert taken.actors == {"sort": ActorReading(2, timedelta(seconds=1.5), timedelta(seconds=3))}
    assert taken.expired == {"nightly": ExpiredReading(1, 0)}
    assert taken.sweeps == {"rows": SweepReading(0, 20)}
    mail = taken.lanes["mail"]
    assert (mail.in_flight, mail.consumers) == (1, 0)
    assert mail.cpu_cores is not None
    assert 60 / 301 < mail.cpu_cores <= 60 / 240, "a minute of CPU in four minutes and what has passed of this one"


def test_without_a_count_the_cores_of_a_lane_are_not_known(broker: FleetBroker) -> None:
    assert readings.take(broker, "beat").lanes["mail"].cpu_cores is None


def test_there_is_none_before_the_first_and_what_another_version_wrote_is_none(broker: FleetBroker) -> None:
    assert readings.latest(broker) is None
    broker.client.hset(keys.readings(broker.namespace), mapping={"at": "1", "reading": '{"of": "to come"}'})
    assert readings.latest(broker) is None
    readings.take(broker, "beat")
    assert readings.latest(broker) is not None


def test_fields_that_another_version_added_are_passed_over(broker: FleetBroker) -> None:
    taken = readings.take(broker, "beat")
    key = keys.readings(broker.namespace)
    written: Any = broker.client.hget(key, "reading")
    broker.client.hset(key, "reading", written.replace(b'"ready"', b'"to_come":7,"ready"', 1))
    assert readings.latest(broker) == taken


def test_the_newest_stands_whoever_writes_last(broker: FleetBroker) -> None:
    taken = readings.take(broker, "beat")
    late = wait_until(lambda: (one := readings.take(broker, "housekeeping")).at > taken.at and one)
    readings._store(broker, broker.client, taken, wire.to_ms(taken.at))
    found = readings.latest(broker)
    assert found is not None
    assert (found.by, found.at) == ("housekeeping", late.at)
    assert found.taken == {"beat": taken.at, "housekeeping": late.at}


def test_a_reading_from_the_future_of_another_server_does_not_stand(broker: FleetBroker) -> None:
    taken = readings.take(broker, "beat")
    readings._store(broker, broker.client, taken, wire.to_ms(taken.at + timedelta(hours=1)))
    again = readings.take(broker, "beat")
    found = readings.latest(broker)
    assert found is not None and found.at == again.at


def test_a_reading_of_more_than_three_night_minutes_ago_is_stale_and_tells_its_age(broker: FleetBroker) -> None:
    clock.set_night(Night(clock.real_now(), clock.real_now(), 60.0))
    readings.take(broker, "beat")
    found = readings.latest(broker)
    assert found is not None and not found.stale
    wait_until(lambda: found.stale)
    again = readings.latest(broker)
    assert again is not None and again.stale
    assert again.age() > timedelta(seconds=180)


def test_its_age_goes_by_the_servers_clock_and_not_by_ones_own(
    broker: FleetBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings.take(broker, "beat")
    real = type(clock).real_now
    monkeypatch.setattr(type(clock), "real_now", lambda self: real(self) + timedelta(hours=1))
    found = readings.latest(broker)
    assert found is not None
    assert not found.stale


def test_what_workers_held_that_are_gone_is_forgotten(broker: FleetBroker) -> None:
    held = keys.prefetched(broker.namespace)
    broker.client.hset(held, mapping={"here": "{}", "gone": "{}"})
    broker.client.hset(keys.workers(broker.namespace), "here", "[]")
    readings.take(broker, "beat")
    assert broker.client.hkeys(held) == [b"here"]


def test_one_a_night_minute_is_kept_in_short_and_both_keys_expire(broker: FleetBroker) -> None:
    began = clock.real_now()
    clock.set_night(Night(datetime(2026, 11, 30, 3, 10, tzinfo=began.tzinfo), began, 100.0))
    broker.client.rpush(keys.queue(broker.namespace, "post"), "one")
    start, taken = clock.now(), 0
    while clock.now() - start < timedelta(minutes=3):
        readings.take(broker, "beat")
        taken += 1
    moments = readings.history(broker, start - timedelta(minutes=1))
    minutes = [flow.minute_of(moment.at) for moment in moments]
    assert taken > len(moments) >= 3
    assert len(set(minutes)) >= len(minutes) - 1  # the stream's stamp may fall behind the minute's end
    assert moments[-1].queues["post"].ready == 1
    assert readings.history(broker, clock.now() + timedelta(hours=1)) == []
    ttls = [broker.client.pttl(key(broker.namespace)) for key in (keys.readings, keys.history)]
    assert all(0 < ttl <= 2 * 86_400_000 / 100 for ttl in ttls)
