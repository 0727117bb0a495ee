"""What flows through a real worker is counted: starts and how late they were, ends, what actors took, what expired."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import dramatiq
import pytest
import redis

from fleet import flow, probe, wire
from fleet.broker import keys
from fleet.clock import clock
from fleet.flow import Counted, Flow
from fleet.probe import QueueReading
from fleet.sweep import sweep
from tests.waiting import wait_until


def counted(house: Any, client: redis.Redis) -> Counted:
    """What the worker counted; it is stopped, so that nothing is left to flush."""
    house.until_idle()
    house.stop()
    minute = flow.minute_of(clock.now())
    return flow.summed(client.hgetall(keys.flow(house.broker.namespace, minute - back)) for back in range(3))


def between(lag: timedelta | None, low: float, high: float) -> bool:
    return lag is not None and timedelta(seconds=low) <= lag <= timedelta(seconds=high)


def test_starts_ends_and_what_actors_took_are_counted(house: Any, redis_client: redis.Redis) -> None:
    @dramatiq.actor(broker=house.broker, queue_name="work")
    def burn() -> None:
        ends = time.thread_time() + 0.05
        while time.thread_time() < ends:
            pass

    @dramatiq.actor(broker=house.broker, queue_name="work")
    def wait() -> None:
        threading.Event().wait(0.05)

    house.work()
    for actor in (burn, wait, wait):
        actor.send()
    found = counted(house, redis_client)
    assert (found.queues["work"].started, found.queues["work"].ended) == (3, 3)
    assert (found.of("a")["burn"]["jobs"], found.of("a")["wait"]["jobs"]) == (1, 2)
    assert found.of("a")["burn"]["cpu_us"] >= 50_000
    assert found.of("a")["wait"]["wall_us"] >= 100_000 > found.of("a")["wait"]["cpu_us"]


def test_a_body_is_late_by_what_its_message_waited_before_a_worker_came(house: Any, redis_client: redis.Redis) -> None:
    @dramatiq.actor(broker=house.broker, queue_name="work")
    def job() -> None: ...

    sent = time.monotonic()
    job.send()
    threading.Event().wait(0.5)
    house.work()
    found = counted(house, redis_client)
    assert between(found.queues["work"].quantile(1.0), 0.5, 1.5 * (time.monotonic() - sent))


def test_a_delay_is_no_lag(house: Any, redis_client: redis.Redis) -> None:
    @dramatiq.actor(broker=house.broker, queue_name="work")
    def job() -> None: ...

    house.work()
    job.send_with_options(delay=4_000)
    found = counted(house, redis_client)
    assert found.queues["work"].started == 1
    assert between(found.queues["work"].quantile(1.0), 0.0, 3.0)


def test_neither_is_the_delay_of_a_stock_producer(house: Any, redis_url: str, redis_client: redis.Redis) -> None:
    from dramatiq.brokers.redis import RedisBroker

    @dramatiq.actor(broker=house.broker, queue_name="work")
    def job() -> None: ...

    stock = RedisBroker(url=redis_url, namespace=house.broker.namespace)
    stock.declare_queue("work")
    stock.enqueue(job.message(), delay=4_000)
    stock.close()
    house.work()
    found = counted(house, redis_client)
    assert found.queues["work"].started == 1
    assert between(found.queues["work"].quantile(1.0), 0.0, 3.0)


def test_each_try_starts_and_the_message_ends_once(house: Any, redis_client: redis.Redis) -> None:
    @dramatiq.actor(broker=house.broker, queue_name="work")
    def fail() -> None:
        raise ValueError("each time")

    house.work()
    fail.send()
    found = counted(house, redis_client)
    assert (found.queues["work"].started, found.queues["work"].ended) == (3, 1)
    assert found.of("a")["fail"]["jobs"] == 3


def test_the_end_of_a_long_message_that_is_tried_again_tells_when_it_is_due(
    house: Any, redis_client: redis.Redis
) -> None:
    """A probe reads no more of it than that; the traceback that the first try left stands before."""

    @dramatiq.actor(broker=house.broker, queue_name="work")
    def fail() -> None:
        try:
            raise ValueError("x" * 5_000)
        except ValueError as error:
            raise dramatiq.errors.Retry("later", delay=120_000) from error

    house.work()
    fail.send_with_options(delay=10)
    held = keys.bodies(house.broker.namespace, "work")
    (body,) = wait_until(lambda: [one for one in redis_client.hvals(held) if b"traceback" in one])
    assert len(body) > 5_000
    assert wire.due_at(body[-512:]) == wire.due_at(body)
    due = wire.due_at(body)
    assert due is not None and due - clock.real_now() > timedelta(seconds=100)


@pytest.mark.parametrize(
    ("options", "figure"),
    [
        ({wire.ENTRY: "nightly", wire.SLOT: 1_000}, "expired"),
        ({wire.ORIGIN: "nightly@2026-11-30T03:10:00+00:00"}, "expired_rest"),
    ],
)
def test_work_of_a_slot_that_came_too_late_is_counted_for_its_entry(
    house: Any, redis_client: redis.Redis, options: dict[str, Any], figure: str
) -> None:
    @dramatiq.actor(broker=house.broker, queue_name="work")
    def job() -> None: ...

    house.work()
    job.send_with_options(**options, expires_at=wire.to_ms(clock.now()) - 1_000)
    found = counted(house, redis_client)
    assert dict(found.of("e")["nightly"]) == {figure: 1}
    assert (found.queues["work"].started, found.queues["work"].ended) == (0, 1)


@pytest.mark.parametrize(
    "options",
    [{wire.CHAIN: 0}, {wire.CHAIN: 0, wire.ORIGIN: "sort@2026-11-30T03:10:00+00:00"}, {wire.NONCE: "by hand"}],
)
def test_a_chain_that_meets_the_end_of_its_night_and_what_a_person_fired_are_no_slots_that_were_missed(
    house: Any, redis_client: redis.Redis, options: dict[str, Any]
) -> None:
    @dramatiq.actor(broker=house.broker, queue_name="work")
    def job() -> None: ...

    house.work()
    job.send_with_options(**options, entry="sort", expires_at=wire.to_ms(clock.now()) - 1_000)
    found = counted(house, redis_client)
    assert found.of("e") == {}
    assert (found.queues["work"].started, found.queues["work"].ended) == (0, 1)


def test_sweeps_that_are_cut_or_have_failures_are_counted_and_others_are_not(
    house: Any, redis_client: redis.Redis
) -> None:
    def work(row: int) -> None:
        if row < 0:
            raise ValueError("a bad row")
        if row > 9:
            raise SystemExit

    @dramatiq.actor(broker=house.broker, queue_name="work", max_retries=0)
    def go(name: str, rows: list[int]) -> None:
        sweep(name, rows, work)

    house.work()
    go.send("good", [1, 2])
    go.send("bad", [1, -1, -1])
    go.send("cut", [1, 10, 2])
    found = counted(house, redis_client)
    assert {name: dict(counts) for name, counts in found.of("s").items()} == {"bad": {"failed": 2}, "cut": {"cut": 1}}


def test_a_sweep_outside_of_a_worker_counts_nothing() -> None:
    assert sweep("alone", [1], lambda row: None).verdict == "done"


def test_a_message_with_nonsense_for_times_runs_all_the_same(
    house: Any, redis_url: str, redis_client: redis.Redis
) -> None:
    from dramatiq.brokers.redis import RedisBroker

    ran = threading.Event()

    @dramatiq.actor(broker=house.broker, queue_name="work")
    def job() -> None:
        ran.set()

    stock = RedisBroker(url=redis_url, namespace=house.broker.namespace)
    stock.declare_queue("work")
    stock.enqueue(job.message_with_options(due_at="soon"))
    stock.close()
    house.work()
    found = counted(house, redis_client)
    assert ran.is_set()
    assert (found.queues["work"].started, found.queues["work"].quantile(1.0)) == (1, None)


def test_what_a_worker_fetched_and_no_thread_began_has_an_age_until_it_begins(
    house: Any, redis_client: redis.Redis
) -> None:
    go, began = threading.Event(), threading.Semaphore(0)

    @dramatiq.actor(broker=house.broker, queue_name="work")
    def job() -> None:
        began.release()
        go.wait(30)

    def seen() -> QueueReading:
        (found,) = probe.read(house.broker, ["work"])
        return found

    house.work()
    for _ in range(2):  # as many as there are threads
        job.send()
    assert all(began.acquire(timeout=10) for _ in range(2))
    sent = clock.real_now()
    job.send()
    wait_until(lambda: seen().in_flight == 3 and seen().oldest_age is not None)
    assert seen().ready == 0
    wait_until(lambda: (age := seen().oldest_age) and age > timedelta(seconds=0.5))
    age = seen().oldest_age
    assert age is not None and age <= clock.real_now() - sent + timedelta(seconds=0.01)
    go.set()
    house.until_idle()
    wait_until(lambda: seen().oldest_age is None)
    assert redis_client.hlen(keys.prefetched(house.broker.namespace)) == 0


def test_a_redis_that_does_not_answer_the_flush_costs_no_job_anything(
    house: Any, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(Flow, "_send", refuse)

    @dramatiq.actor(broker=house.broker, queue_name="work")
    def job() -> None: ...

    house.work()
    for _ in range(20):
        job.send()
    wait_until(lambda: not redis_client.exists(keys.bodies(house.broker.namespace, "work")))
    assert not redis_client.exists(keys.dead(house.broker.namespace, "work"))
