"""A delayed message waits in Redis, in nobody's memory, and comes when it is due."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import dramatiq
import pytest
import redis

from fleet.broker import keys, pump
from fleet.broker.scripts import Scripts
from tests.broker.process import process
from tests.broker.station import QUEUE, Station, stock
from tests.broker.turns import Turns, fetched
from tests.waiting import wait_until

Keep = Callable[[Station], Station]
HOUR_MS = 3_600_000


def test_a_delay_over_seven_days_is_accepted_and_due_when_it_says(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    note = station.actor(print, actor_name="note")
    note.send_with_options(args=(1,), delay=30 * 24 * HOUR_MS)
    ((_, due),) = redis_client.zrange(keys.due(namespace, QUEUE), 0, -1, withscores=True)
    assert due / 1000 - time.time() == pytest.approx(30 * 24 * 3600, abs=5)


def test_one_turn_promotes_a_bounded_number_and_says_that_more_are_due(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    note = station.actor(print, actor_name="note")
    list(station.broker.enqueue_many((note.message(n) for n in range(250)), delay=0))
    turns = Turns(redis_client, Scripts(redis_client), namespace, "w")
    wait_until(lambda: redis_client.zcount(keys.due(namespace, QUEUE), 0, time.time() * 1000) == 250)
    first = turns.take(wanted=1_000)
    assert (len(fetched(first)), first[1]) == (100, b"0")
    assert [len(fetched(turns.take(wanted=1_000))) for _ in range(3)] == [100, 50, 0]


@pytest.mark.alone
def test_an_earlier_delay_wakes_a_consumer_that_sleeps_until_a_later_one(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "SAFETY_SECONDS", 60.0)
    ran: list[int] = []
    note = station.actor(ran.append, actor_name="note")
    note.send_with_options(args=(0,), delay=HOUR_MS)
    station.work()
    for number in range(1, 6):
        note.send_with_options(args=(number,), delay=60)
        wait_until(lambda number=number: number in ran, 1.0)
    assert ran == [1, 2, 3, 4, 5]


def test_delayed_messages_run_in_the_order_they_are_due(station: Station) -> None:
    ran: list[int] = []
    note = station.actor(ran.append, actor_name="note")
    for number in (3, 1, 4, 2, 5):
        note.send_with_options(args=(number,), delay=100 + number * 40)
    station.work(threads=1)
    wait_until(lambda: len(ran) == 5)
    assert ran == [1, 2, 3, 4, 5]


def test_what_a_stock_producer_delayed_moves_over_with_its_own_due_time(
    station: Station, redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    ran: list[int] = []
    station.actor(ran.append, actor_name="note")
    theirs = stock(redis_url, namespace)
    note: Any = dramatiq.actor(print, broker=theirs, queue_name=QUEUE, actor_name="note")
    later = note.send_with_options(args=(1,), delay=HOUR_MS)
    note.send_with_options(args=(2,), delay=50)
    station.work()
    wait_until(lambda: ran == [2])
    ((id, due),) = redis_client.zrange(keys.due(namespace, QUEUE), 0, -1, withscores=True)
    assert (id.decode(), due) == (later.options["redis_message_id"], later.options["eta"])
    assert not redis_client.exists(keys.queue(namespace, f"{QUEUE}.DQ"), keys.bodies(namespace, f"{QUEUE}.DQ"))


@pytest.mark.parametrize("eta", ["NaN", "Infinity", "-Infinity", "1e300", '"soon"', "null", "[]", "{}", "0", "-5"])
def test_an_eta_that_is_no_time_is_due_at_once_and_stops_nothing(
    eta: str, station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    ran: list[int] = []
    note = station.actor(ran.append, actor_name="note")
    body = note.message(1).encode().replace(b'"options":{', b'"options":{"eta":%s,"x":0' % eta.encode())
    redis_client.hset(keys.bodies(namespace, f"{QUEUE}.DQ"), "odd", body.replace(b',"x":0}', b"}"))
    redis_client.rpush(keys.queue(namespace, f"{QUEUE}.DQ"), "odd")
    assert json.loads(redis_client.hget(keys.bodies(namespace, f"{QUEUE}.DQ"), "odd") or "")["options"].keys() == {
        "eta"
    }
    note.send(2)
    station.work()
    wait_until(lambda: sorted(ran) == [1, 2])


def test_a_delayed_message_survives_the_death_of_the_worker_that_would_have_run_it(
    station: Station, redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    ran: list[int] = []
    note = station.actor(ran.append, actor_name="note")
    with process("ours", redis_url, namespace) as worker:
        note.send_with_options(args=(1,), delay=500)
        wait_until(lambda: redis_client.hlen(keys.workers(namespace)) == 1)
        worker.kill()
    station.work()
    wait_until(lambda: ran == [1])
