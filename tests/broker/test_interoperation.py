"""Stock Dramatiq and Nightshift on one queue: either sends to the other, and neither loses the other's messages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import dramatiq
import pytest
import redis

from fleet.broker import keys
from fleet.broker.reaper import Reaper
from fleet.broker.scripts import Scripts
from tests.broker.process import Jobs, declare, process
from tests.broker.station import QUEUE, Station, places, stock
from tests.waiting import wait_until

Keep = Callable[[Station], Station]


def test_a_stock_producer_sends_to_our_worker_also_delayed(station: Station, redis_url: str, namespace: str) -> None:
    ran: list[str] = []
    station.actor(ran.append, actor_name="note")
    theirs = stock(redis_url, namespace)
    note: Any = dramatiq.actor(print, broker=theirs, queue_name=QUEUE, actor_name="note")
    note.send("before it works")
    station.work(threads=1)
    note.send("while it works")
    note.send_with_options(args=("later",), delay=400)
    wait_until(lambda: len(ran) == 3)
    assert ran[-1] == "later"
    station.until_empty()


def test_our_producer_sends_to_a_stock_worker_which_retries_it_its_own_way(
    station: Station, redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    ran: list[str] = []

    def fails_once(name: str) -> None:
        ran.append(name)
        if len(ran) == 1:
            raise ValueError(name)

    theirs = stock(redis_url, namespace, dramatiq.middleware.Retries(min_backoff=1, max_backoff=2))  # type: ignore[no-untyped-call]
    dramatiq.actor(fails_once, broker=theirs, queue_name=QUEUE, actor_name="job")
    job = station.actor(print, actor_name="job")
    worker = dramatiq.Worker(theirs, worker_timeout=50, worker_threads=1)
    worker.start()
    job.send("one")
    list(station.broker.enqueue_many(job.message(f"many {n}") for n in range(20)))
    wait_until(lambda: len(ran) == 22 and places(redis_client, namespace) == {})
    worker.stop()
    assert sorted(set(ran)) == sorted(["one", *(f"many {n}" for n in range(20))])


def test_a_stock_tool_reads_our_dead_letters(station: Station, redis_client: redis.Redis, namespace: str) -> None:
    dead = station.actor(lambda: 1 / 0, actor_name="divides", max_retries=0)
    sent = dead.send()
    station.work()
    station.until_empty()
    ((id, _died),) = redis_client.zrange(keys.dead(namespace, QUEUE), 0, -1, withscores=True)
    body = redis_client.hget(keys.dead_bodies(namespace, QUEUE), id)
    assert body is not None
    assert dramatiq.Message.decode(body).message_id == sent.message_id


@pytest.mark.parametrize("killed", ["ours", "stock"])
@pytest.mark.parametrize("producer", ["ours", "stock"])
def test_both_kinds_of_worker_on_one_queue_lose_nothing_when_one_is_killed(
    killed: str, producer: str, redis_url: str, redis_client: redis.Redis, namespace: str, stations: Keep
) -> None:
    jobs = Jobs(redis_client, namespace)
    brokers = {"ours": stations(Station(redis_url, namespace)).broker, "stock": stock(redis_url, namespace)}
    actor = declare(brokers[producer], jobs)
    names = [f"job {number}" for number in range(30)]
    lost_after = timedelta(seconds=1)
    reaper = Reaper(
        redis_client, Scripts(redis_client), namespace, [QUEUE], lost_after=lost_after, stock_lost_after=lost_after
    )
    with process("ours", redis_url, namespace, 2) as ours, process("stock", redis_url, namespace, 2) as theirs:
        for name in names:
            actor.send(name)
        wait_until(lambda: sum(jobs.runs(name) for name in names) == 4)  # both hold as much as they may
        (ours if killed == "ours" else theirs).kill()
        for name in names:
            for run in range(1, 5):
                jobs.release(name, run)

        def all_ended() -> bool:
            with suppress(redis.RedisError):
                reaper.look()
            return all(jobs.ended(name) for name in names)

        wait_until(all_ended, 15)
        wait_until(lambda: places(redis_client, namespace) == {})
    assert sum(jobs.runs(name) for name in names) == len(names) + 2  # what ran in the one that was killed ran again
