"""A consumer sleeps on a subscription. Here its safety fetch comes once a minute: only a wake-up can be quick."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import redis
from structlog.testing import capture_logs

from fleet.broker import keys, pump
from tests.broker.conftest import OwnRedis
from tests.broker.proxy import Proxy
from tests.broker.station import QUEUE, Station, places, stock
from tests.waiting import wait_until

pytestmark = pytest.mark.alone

Keep = Callable[[Station], Station]
AT_ONCE = 1.0


@pytest.fixture(autouse=True)
def _no_safety_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "SAFETY_SECONDS", 60.0)


def test_a_message_starts_at_once_on_an_idle_queue(station: Station) -> None:
    ran: list[int] = []
    note = station.actor(ran.append, actor_name="note")
    station.work()
    for number in range(20):
        note.send(number)
        wait_until(lambda number=number: number in ran, AT_ONCE)


def test_our_message_wakes_for_what_a_stock_producer_pushed_without_a_word_before_it(station: Station) -> None:
    ran: list[int] = []
    note = station.actor(ran.append, actor_name="note")
    worker = station.work()
    client = station.broker.client
    wait_until(lambda: client.pubsub_numsub(keys.wake(station.namespace))[0][1])
    note.send(0)
    wait_until(lambda: ran == [0] and not worker.pump.held)
    wait_until(lambda: client.sismember(keys.awaited(station.namespace), QUEUE))
    theirs = stock(station.url, station.namespace)
    theirs.enqueue(note.message(1))
    assert not worker.pump.held
    note.send(2)
    wait_until(lambda: sorted(ran) == [0, 1, 2], AT_ONCE)
    theirs.close()


def test_a_retry_and_a_message_that_was_handed_back_start_at_once(station: Station, stations: Keep) -> None:
    ran: list[str] = []
    held = threading.Event()

    def job(name: str) -> None:
        ran.append(name)
        if name == "fails" and ran.count(name) == 1:
            raise ValueError(name)
        if name == "long":
            held.wait(10)

    run = station.actor(job)
    station.work()
    run.send("fails")
    wait_until(lambda: ran.count("fails") == 2, AT_ONCE)
    other = stations(Station(station.url, station.namespace))
    other.actor(job)
    full = other.work(threads=1, prefetch=5)
    station.workers[0].pause()
    run.send("long")
    wait_until(lambda: "long" in ran)
    run.send("behind it")
    wait_until(lambda: full.pump.held == 2)
    station.workers[0].resume()
    full.pump.fetch(False)  # else it may fetch again itself what it hands back
    full.return_prefetched()
    wait_until(lambda: "behind it" in ran, AT_ONCE)
    held.set()


def test_a_freed_thread_fetches_the_next_message_without_a_poll(station: Station) -> None:
    ran: list[int] = []
    note = station.actor(ran.append, actor_name="note")
    for number in range(200):
        note.send(number)
    station.work(threads=1, prefetch=1)
    wait_until(lambda: len(ran) == 200, 5.0)
    assert ran == list(range(200))


def test_a_reaped_message_wakes_an_idle_worker(station: Station, redis_client: redis.Redis, namespace: str) -> None:
    ran: list[int] = []
    note = station.actor(ran.append, actor_name="note")
    id = note.send(1).options["redis_message_id"]
    redis_client.lpop(keys.queue(namespace, QUEUE))
    redis_client.sadd(keys.acks(namespace, "gone", QUEUE), id)
    worker = station.work()
    wait_until(lambda: worker.pump.turned_at)
    station.broker.presume_dead("gone", [QUEUE])
    wait_until(lambda: ran == [1], AT_ONCE)


def test_a_lost_subscription_falls_back_to_polling_says_so_once_and_finds_what_was_sent_meanwhile(
    own_redis: OwnRedis, own_station: Station
) -> None:
    ran: list[int] = []
    note = own_station.actor(ran.append, actor_name="note")
    with own_redis.client as admin, capture_logs() as logs:
        own_station.work()
        wait_until(lambda: admin.pubsub_numsub(keys.wake("own"))[0][1] == 1)
        admin.execute_command("ACL", "SETUSER", "default", "-subscribe")
        admin.client_kill_filter(_type="pubsub")
        for number in range(4):
            note.send(number)
            wait_until(lambda number=number: number in ran, 1.2)  # a poll a second, and what it takes
        assert admin.pubsub_numsub(keys.wake("own"))[0][1] == 0
        assert not [line for line in logs if line["event"] == "wake_restored"]
        admin.execute_command("ACL", "SETUSER", "default", "+subscribe")
        wait_until(lambda: [line for line in logs if line["event"] == "wake_restored"])
        note.send(4)
        wait_until(lambda: 4 in ran, AT_ONCE)
    said = [line["event"] for line in logs if line["event"].startswith(("wake", "redis"))]
    assert said == ["wake_lost", "wake_restored"]


def test_a_subscription_that_went_silent_without_a_word_is_found_out_within_two_pings(
    proxy: Proxy, namespace: str, redis_url: str, stations: Keep
) -> None:
    ran: list[int] = []
    worker, sender = stations(Station(proxy.url, namespace)), stations(Station(redis_url, namespace))
    worker.actor(ran.append, actor_name="note")
    note = sender.actor(ran.append, actor_name="note")
    with capture_logs() as logs:
        worker.work()
        note.send(0)
        wait_until(lambda: ran == [0])
        proxy.mute_subscriptions = True
        note.send(1)
        wait_until(lambda: 1 in ran, 2.0)
        assert [line["event"] for line in logs if line["event"].startswith("wake")] == ["wake_lost"]
        proxy.mute_subscriptions = False
        wait_until(lambda: [line for line in logs if line["event"] == "wake_restored"])


def test_a_turn_whose_reply_is_lost_to_the_thread_that_listens_is_asked_again(
    proxy: Proxy, namespace: str, redis_url: str, stations: Keep
) -> None:
    ran: list[int] = []
    worker, sender = stations(Station(proxy.url, namespace)), stations(Station(redis_url, namespace))
    worker.actor(ran.append, actor_name="note")
    note = sender.actor(ran.append, actor_name="note")
    worker.work()
    note.send(0)
    wait_until(lambda: ran == [0])
    worker.until_empty()
    with capture_logs() as logs:
        proxy.lose_reply()
        note.send(1)
        worker.until_empty()
    assert proxy.lost
    assert ran == [0, 1]
    assert [line["event"] for line in logs] == ["redis_lost", "redis_back"]


def test_a_worker_that_stops_while_the_thread_that_listens_takes_a_turn_leaves_nothing_behind(
    proxy: Proxy, namespace: str, redis_client: redis.Redis, redis_url: str, stations: Keep
) -> None:
    ran: list[int] = []
    worker, sender = stations(Station(proxy.url, namespace)), stations(Station(redis_url, namespace))
    worker.actor(ran.append, actor_name="note")
    note = sender.actor(ran.append, actor_name="note")
    at_work = worker.work()
    wait_until(lambda: at_work.pump.turned_at)
    proxy.delay = 0.3
    note.send(1)
    wait_until(lambda: list(places(redis_client, namespace).values()) == [[at_work.pump.worker_id]])
    worker.stop()
    assert ran == []
    assert list(places(redis_client, namespace).values()) == [["waiting"]]
    assert redis_client.hlen(keys.workers(namespace)) == 0
