"""What a process counts, flushed into a hash a night minute, and what is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from dramatiq import Message
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fleet import flow, wire
from fleet.broker import keys
from fleet.broker.connection import client_from
from fleet.clock import Night, clock
from fleet.flow import Flow, QueueFlow
from tests.waiting import wait_until

NOW = datetime(2026, 11, 30, 3, 10, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def counts(redis_url: str, namespace: str) -> Iterator[Flow]:
    made = Flow(client_from(redis_url), namespace)
    made.start()
    yield made
    made.stop()
    clock.set_night(None)


def stored(client: redis.Redis, namespace: str) -> dict[str, int]:
    """All minutes together."""
    found: dict[str, int] = {}
    for key in client.scan_iter(f"{namespace}:fleet:flow:*"):
        for figure, count in client.hgetall(key).items():
            found[figure.decode()] = found.get(figure.decode(), 0) + int(count)
    return found


def letter(**options: Any) -> Message[Any]:
    return Message("post", "deliver", (), {}, options, message_timestamp=wire.to_ms(NOW) - 90_000)


def test_what_was_counted_is_in_the_hash_of_its_night_minute_and_expires(
    counts: Flow, redis_client: redis.Redis, namespace: str
) -> None:
    counts.started("post", 1_000.0)
    counts.ran("post", "deliver", wall=2.0, cpu=0.5, ended=True)
    counts.started("post", None)
    counts.ran("post", "deliver", wall=1.0, cpu=0.25, ended=False)
    counts.add("l:mail:cpu_us", count=7)
    wanted = {"q:post:started": 2, "q:post:ended": 1, f"q:post:lag.{flow.bucket(1_000)}": 1, "l:mail:cpu_us": 7}
    wanted |= {"a:deliver:jobs": 2, "a:deliver:wall_us": 3_000_000, "a:deliver:cpu_us": 750_000}
    wait_until(lambda: stored(redis_client, namespace) == wanted)
    keys_of = [keys.flow(namespace, flow.minute_of(clock.now()) - back) for back in (0, 1)]
    ttls = [redis_client.ttl(key) for key in keys_of if redis_client.exists(key)]
    assert ttls and all(1_100 < ttl <= 1_200 for ttl in ttls)


def test_what_is_left_is_flushed_when_its_process_ends(
    redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    counts = Flow(client_from(redis_url), namespace)
    counts.start()
    for _ in range(1_000):
        counts.started("post", None)
    counts.stop()
    assert stored(redis_client, namespace) == {"q:post:started": 1_000}


def test_one_that_counted_nothing_ends_when_it_is_told_to(redis_url: str, namespace: str) -> None:
    counts = Flow(client_from(redis_url), namespace)
    counts.start()
    counts.stop()
    assert not counts._thread.is_alive()


def test_of_what_workers_hold_the_oldest_of_a_queue_tells() -> None:
    said = [b'{"post":2000,"other":5000}', None, b'{"post":1000}', b"of another version", b'{"post":"soon"}', b"[]"]
    assert flow.prefetched(said) == {"post": wire.from_ms(1_000), "other": wire.from_ms(5_000)}


def test_counts_wait_while_redis_does_not_answer(redis_client: redis.Redis, redis_url: str, namespace: str) -> None:
    away = client_from("redis://127.0.0.1:1/0")
    counts = Flow(away, namespace)
    counts.started("post", None)
    assert counts._flush() is False
    counts.started("post", None)
    counts._client = client_from(redis_url)
    assert counts._flush() is True
    assert stored(redis_client, namespace) == {"q:post:started": 2}
    assert counts._flush() is True
    assert stored(redis_client, namespace) == {"q:post:started": 2}


def test_what_waited_is_counted_in_its_own_minute_and_dropped_after_twenty(
    redis_client: redis.Redis, redis_url: str, namespace: str
) -> None:
    counts = Flow(client_from("redis://127.0.0.1:1/0"), namespace)
    nights = [NOW, NOW + timedelta(minutes=1), NOW + timedelta(minutes=20, seconds=59)]
    try:
        for night in nights:
            clock.set_night(Night(night, clock.real_now(), 0.001))
            counts.started("post", None)
            counts._flush()
        counts._client = client_from(redis_url)
        counts._flush()
    finally:
        clock.set_night(None)
    first = flow.minute_of(NOW)
    found = {minute - first for minute in range(first, first + 25) if redis_client.exists(keys.flow(namespace, minute))}
    assert found == {1, 20}


def test_a_hash_that_somebody_wrote_over_does_not_end_the_counting(
    counts: Flow, redis_client: redis.Redis, namespace: str
) -> None:
    minute = flow.minute_of(clock.now())
    for one in (minute, minute + 1):
        redis_client.set(keys.flow(namespace, one), "not a hash", ex=60)
    with capture_logs() as logs:
        counts.started("post", None)
        wait_until(lambda: [line for line in logs if line["event"] == "flow_refused"])
    redis_client.delete(*(keys.flow(namespace, one) for one in (minute, minute + 1)))
    counts.started("other", None)
    wait_until(lambda: stored(redis_client, namespace) == {"q:other:started": 1})


def test_a_message_is_late_by_the_time_since_it_was_due() -> None:
    assert flow.start_lag(letter(), NOW) == 90 * SECOND
    assert flow.start_lag(letter(due_at=wire.to_ms(NOW) - 5_000), NOW) == 5 * SECOND
    assert flow.start_lag(letter(due_at=wire.to_ms(NOW) + 5_000), NOW) == timedelta(0)


@pytest.mark.parametrize("due", ["soon", 1e400, -(10**30), True, [], {}])
def test_what_a_sender_wrote_for_a_time_and_is_none_gives_no_lag(due: object) -> None:
    assert flow.start_lag(letter(due_at=due), NOW) is None


def test_lags_are_night_time() -> None:
    clock.set_night(Night(NOW, NOW, 60.0))
    try:
        assert flow.start_lag(letter(), NOW) == timedelta(minutes=90)
    finally:
        clock.set_night(None)


@given(st.integers(0, 10**12))
def test_a_lag_is_below_the_upper_bound_of_its_bucket_and_not_below_the_one_before(microseconds: int) -> None:
    lag = timedelta(microseconds=microseconds)
    place = flow.bucket(microseconds / 1000)
    slack = 1 + 1e-9
    assert lag <= flow.upper(place) * slack
    assert place == 0 or lag * slack >= flow.upper(place - 1)


@given(st.lists(st.integers(1, 10**10), min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 1.0]))
def test_a_quantile_is_right_to_within_its_bucket(lags: list[int], share: float) -> None:
    queue = QueueFlow()
    for microseconds in lags:
        queue.lags[flow.bucket(microseconds / 1000)] += 1
    found = queue.quantile(share)
    ordered = sorted(lags)
    exact = timedelta(microseconds=ordered[max(0, -int(-share * len(lags) // 1) - 1)])
    assert found is not None
    place = flow.bucket(exact / timedelta(milliseconds=1))
    low = timedelta(0) if place == 0 else flow.upper(place - 1)
    assert low * (1 - 1e-9) <= found + timedelta(microseconds=1)
    assert found <= flow.upper(place) * (1 + 1e-9) + timedelta(microseconds=1)


def test_a_queue_on_which_nothing_started_has_no_quantile() -> None:
    assert QueueFlow().quantile(0.95) is None


def test_minutes_are_added_up_and_what_another_version_counted_is_passed_over() -> None:
    one = {b"q:post:started": b"2", b"q:post:lag.7": b"2", b"a:name:with:colons:jobs": b"1", b"z:new:thing": b"1"}
    two = {b"q:post:started": b"3", b"q:post:ended": b"4", b"q:post:lag.9": b"1", b"q:post:lag.x": b"1", b"q:odd": b"1"}
    counted = flow.summed([one, two])
    post = counted.queues["post"]
    assert (post.started, post.ended, dict(post.lags)) == (5, 4, {7: 2, 9: 1})
    assert counted.of("a")["name:with:colons"]["jobs"] == 1
    assert counted.of("s") == {}
