"""The leading beat reads and judges the queues each night minute, over a connection of its own."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis

from beat.probing import ANSWERS_WITHIN, Probing
from fleet import clock as clocks
from fleet import readings, sentry, wire
from fleet.broker import FleetBroker, keys
from fleet.broker.connection import client_from
from fleet.clock import Night, clock
from fleet.settings import Settings
from tests.beat.replicas import Beats
from tests.broker.proxy import Proxy
from tests.middleware.ingest import Ingest
from tests.waiting import wait_until

EACH_MINUTE = """
from datetime import timedelta
from fleet import Entry

minute = timedelta(minutes=1)
SCHEDULE = [Entry("tick", every=minute, expires=minute, because="the test wants a beat that fires now and then")]
"""
RATE = 120.0  # night seconds a real second: half a second a minute
Start = Callable[..., Probing]


@pytest.fixture
def fast() -> Iterator[Night]:
    night = Night(datetime(2026, 11, 30, 3, 10, tzinfo=UTC), clock.real_now(), RATE)
    clock.set_night(night)
    yield night
    clock.set_night(None)


@pytest.fixture
def probing(namespace: str, fast: Night) -> Iterator[Start]:
    """Starts a replica's probing over a client; the broker's own client leads nowhere."""
    started = []

    def start(client: redis.Redis, leads: bool = True, suffix: str = "") -> Probing:
        broker = FleetBroker(url="redis://127.0.0.1:1/0", namespace=namespace + suffix)
        broker.declare_queue("post")
        made = Probing(broker, client, lambda: leads, lambda: None)
        made.start()
        started.append(made)
        return made

    yield start
    for one in started:
        one.stop()
        one._thread.join(10)


def moments(client: redis.Redis, namespace: str) -> int:
    return int(client.xlen(keys.history(namespace)))


def test_the_leader_looks_each_night_minute_over_its_own_client_and_a_follower_does_not(
    probing: Start, redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    probing(client_from(redis_url), leads=False, suffix=":follower")
    probing(client_from(redis_url))
    wait_until(lambda: moments(redis_client, namespace) >= 3)
    assert moments(redis_client, f"{namespace}:follower") == 0


def test_a_redis_that_hangs_or_cuts_the_connection_ends_one_look_and_not_the_looking(
    probing: Start, redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    with Proxy(redis_url) as proxy:
        one = probing(client_from(proxy.url, answers_within=ANSWERS_WITHIN / 10))
        wait_until(lambda: moments(redis_client, namespace) >= 1)
        proxy.delay = 0.5
        proxy.cut()
        before = wait_until(lambda: moments(redis_client, namespace))
        proxy.delay = 0.0
        wait_until(lambda: moments(redis_client, namespace) >= before + 2)
        assert one._thread.is_alive()


def test_a_look_that_breaks_is_said_and_does_not_end_the_looking(
    probing: Start, redis_url: str, redis_client: redis.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleet import health

    whole, broken = health.look, []

    def break_twice(*given: object) -> object:
        if len(broken) < 2:
            broken.append(1)
            raise ValueError("whatever it is")
        return whole(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(health, "look", break_twice)
    probing(client_from(redis_url))
    wait_until(lambda: moments(redis_client, namespace) >= 1)
    assert len(broken) == 2


def test_a_leading_process_stores_readings_says_alerts_and_is_followed_by_the_next(
    tmp_path: Path, redis_url: str, redis_client: redis.Redis, namespace: str, fast: Night
) -> None:
    beats = Beats(tmp_path, redis_url, namespace, EACH_MINUTE, **clocks.environment(fast))
    broker = FleetBroker(url=redis_url, namespace=namespace)
    try:
        beats.start(2)
        leader, follower = beats.leader_and_follower()
        found = wait_until(lambda: readings.latest(broker))
        assert (found.by, set(found.queues), set(found.lanes)) == ("beat", {"ticks"}, {"ticks"})
        redis_client.zadd(keys.dead(namespace, "ticks"), {"letter": wire.to_ms(clock.real_now())})
        wait_until(lambda: any(event["event"] == "alert_opened" for event in leader.events()))
        wait_until(lambda: all(told["said"] for told in map(json.loads, redis_client.hvals(keys.alerts(namespace)))))
        leader.process.send_signal(signal.SIGKILL)
        died = clock.now()
        wait_until(lambda: (one := readings.latest(broker)) and one.at > died, 20)
    finally:
        beats.stop()
        broker.client.connection_pool.disconnect()
    said = [event for event in leader.events() + follower.events() if event["event"] == "alert_opened"]
    assert [event["level"] for event in said if event["kind"] == "dead_letters"] == ["critical"]


@pytest.mark.parametrize(("complaint", "monitors"), [(None, ["fleet-beat", "fleet-probe"]), ("ill", ["fleet-probe"])])
def test_sentry_hears_each_minute_that_the_beat_could_fire_and_that_queues_were_judged(
    redis_url: str, namespace: str, complaint: str | None, monitors: list[str]
) -> None:
    import sentry_sdk

    server = Ingest()
    assert sentry.begin(Settings(sentry_dsn=server.dsn))
    try:
        broker = FleetBroker(url=redis_url, namespace=namespace)
        broker.declare_queue("post")
        broker.client.zadd(keys.dead(namespace, "post"), {"letter": wire.to_ms(clock.real_now())})
        probe = Probing(broker, broker.client, lambda: True, lambda: complaint)
        probe._look()
        probe._look()
        sentry.flush()
        heard = server.check_ins()
        assert sorted(one["monitor_slug"] for one in heard) == sorted(monitors * 2)
        assert {one["status"] for one in heard} == {"ok"}
        assert all(one["monitor_config"]["schedule"]["unit"] == "minute" for one in heard)
        (event,) = server.events()  # one an episode
        assert event["fingerprint"] == ["dead_letters", "post"]
        broker.client.connection_pool.disconnect()
    finally:
        sentry_sdk.get_client().close(timeout=1)
        sentry_sdk.get_global_scope().set_client(None)
        server.close()


def test_a_night_that_is_played_is_no_news_for_sentry(redis_url: str, namespace: str, fast: Night) -> None:
    import sentry_sdk

    server = Ingest()
    assert sentry.begin(Settings(sentry_dsn=server.dsn))
    try:
        broker = FleetBroker(url=redis_url, namespace=namespace)
        Probing(broker, broker.client, lambda: True, lambda: None)._look()
        sentry.flush()
        assert server.check_ins() == []
        broker.client.connection_pool.disconnect()
    finally:
        sentry_sdk.get_client().close(timeout=1)
        sentry_sdk.get_global_scope().set_client(None)
        server.close()
