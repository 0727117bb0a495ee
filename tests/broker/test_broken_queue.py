"""A queue one of whose keys is no longer of its type stands still; nothing of it is lost, and the others go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import dramatiq
import pytest
import redis
from structlog.testing import capture_logs

from fleet.broker import keys, pump
from fleet.broker.broker import NotAccepted
from fleet.broker.reaper import Apart, Reaper, reap
from fleet.workers.verdicts import Suspects, Verdicts
from tests.broker.conftest import OwnRedis
from tests.broker.station import QUEUE, Station, stock
from tests.broker.turns import Turns, fetched
from tests.waiting import wait_until

OfQueue = Callable[[str, str], str]
BROKEN: dict[str, OfQueue] = {
    "list": keys.queue,
    "bodies": keys.bodies,
    "delays": keys.due,
    "delays of stock producers": lambda namespace, name: keys.queue(namespace, keys.delayed(name)),
}


@contextmanager
def broken(client: redis.Redis, key: str) -> Iterator[None]:
    """Another type in the place of a key; what it held is there again afterwards."""
    aside = f"{key}.aside"
    if client.exists(key):
        client.rename(key, aside)
    client.set(key, "no longer what it was")
    yield
    client.delete(key)
    if client.exists(aside):
        client.rename(aside, key)


def worker_of(station: Station, name: str = "w") -> Turns:
    return Turns(station.broker.client, station.broker.own_scripts, station.namespace, name)


@pytest.mark.parametrize("which", BROKEN)
def test_a_worker_of_two_queues_goes_on_with_the_whole_one_and_takes_up_the_broken_one_when_it_is_mended(
    which: str, station: Station, redis_client: redis.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "SAFETY_SECONDS", 0.3)
    ran: list[int] = []
    note = station.actor(ran.append, actor_name="note")
    other = station.broker.declare_queue("whole")
    assert other is None
    key = BROKEN[which](namespace, QUEUE)
    note.send(1)
    note.send_with_options(args=(2,), delay=10)
    with capture_logs() as logs:
        with broken(redis_client, key):
            station.work()
            station.broker.enqueue(note.message(3).copy(queue_name="whole"))
            wait_until(lambda: 3 in ran)
            wait_until(lambda: [line for line in logs if line["event"] == "queue_broken"])
        wait_until(lambda: sorted(ran) == [1, 2, 3])
        station.until_empty()
        wait_until(lambda: [line for line in logs if line["event"] == "queue_mended"])
    (told,) = [line for line in logs if line["event"] == "queue_broken"]
    assert told["queue"] == QUEUE and told["error"].startswith(f"{key}: WRONGTYPE")


def test_an_end_that_a_broken_key_refuses_is_written_once_it_is_mended(
    station: Station, redis_client: redis.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "SAFETY_SECONDS", 0.3)

    def fail() -> None:
        raise ValueError("for good")

    dies = station.actor(fail, max_retries=0)
    key = keys.dead_details(namespace, QUEUE)
    with capture_logs() as logs:
        with broken(redis_client, key):
            worker = station.work()
            dies.send()
            wait_until(lambda: [line for line in logs if line["event"] == "queue_broken"])
            assert worker.pump.held == 1, "it is neither ended nor lost"
            assert not redis_client.exists(keys.dead(namespace, QUEUE)), "nor a letter already"
        wait_until(lambda: station.letters())
    wait_until(lambda: worker.ends["dead"] == 1)
    station.until_empty()


def test_ends_that_a_broken_key_refuses_take_no_room_from_another_queue_and_are_not_asked_for_in_a_tight_loop(
    own_station: Station, own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "SAFETY_SECONDS", 0.3)
    begun, failed = threading.Event(), list[int]()

    def fail(number: int) -> None:
        failed.append(number)
        raise ValueError("for good")

    def work() -> None:
        begun.set()
        time.sleep(1)

    dies, works = own_station.actor(fail, max_retries=0), own_station.actor(work)
    own_station.broker.declare_queue("whole")
    client = own_redis.client

    def scripts_called() -> int:
        return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])

    with capture_logs() as logs, broken(client, keys.dead_details("own", QUEUE)):
        for number in range(2):
            dies.send(number)
        worker = own_station.work(threads=2, prefetch=2)
        wait_until(lambda: len(failed) == 2 and [line for line in logs if line["event"] == "queue_broken"])
        dies.send(2)
        own_station.broker.enqueue(works.message().copy(queue_name="whole"))
        assert begun.wait(2)
        before = scripts_called()
        wait_until(lambda: worker.ends["done"])
        assert scripts_called() - before < 50
        assert (sorted(failed), worker.pump.held) == ([0, 1], 2), "of the broken queue nothing more is fetched"
    wait_until(lambda: len(own_station.letters()) == 3)
    own_station.until_empty()


@pytest.mark.parametrize("which", [keys.queue, keys.bodies, keys.due, lambda namespace, _: keys.awaited(namespace)])
def test_a_send_to_a_broken_queue_is_refused_whole(
    which: OfQueue, station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    note = station.actor(print, actor_name="note")
    key = which(namespace, QUEUE)
    redis_client.set(key, "no longer what it was")
    delays = [None, 1_000]
    for delay in delays:
        with pytest.raises(NotAccepted, match="WRONGTYPE"):
            note.send_with_options(args=(1,), delay=delay)
    assert redis_client.keys(f"{namespace}:*") == [key.encode()]


def test_the_end_of_an_earlier_delivery_does_not_end_a_later_one_to_the_same_worker(station: Station) -> None:
    note = station.actor(print, actor_name="note")
    note.send(1)
    broker = station.broker
    worker = Turns(broker.client, broker.own_scripts, station.namespace, "w")
    ((id, _),) = fetched(worker.take(1))
    first = worker.deliveries[id]
    assert worker.take(0, [("back", id, b"", b"")])[0] == b"1"
    assert fetched(worker.take(1))
    second = worker.deliveries[id]
    assert first != second
    worker.deliveries[id] = first
    assert worker.take(0, [("done", id, b"", b"")])[0] == b"0"
    assert station.places() == {id: ["w"]}
    worker.deliveries[id] = second
    assert worker.take(0, [("done", id, b"", b"")])[0] == b"1"
    assert station.places() == {}


@pytest.mark.parametrize("which", [keys.bodies, keys.due, lambda ns, name: keys.bodies(ns, keys.delayed(name))])
def test_what_a_stock_producer_delayed_waits_in_stocks_list_while_it_cannot_be_moved(
    which: OfQueue, station: Station, redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    theirs = stock(redis_url, namespace)
    note: Any = dramatiq.actor(print, broker=theirs, queue_name=QUEUE, actor_name="note")
    sent = note.send_with_options(args=(1,), delay=10)
    worker = worker_of(station)
    with broken(redis_client, which(namespace, QUEUE)):
        for _ in range(3):
            worker.take(1)
    ((id, _),) = wait_until(lambda: fetched(worker.take(1)))
    assert id.decode() == sent.options["redis_message_id"]


@pytest.mark.parametrize("which", [keys.acks, keys.held])
def test_what_a_worker_cannot_hold_stays_in_its_queue(
    which: Callable[[str, str, str], str], station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    note = station.actor(print, actor_name="note")
    for number in range(2):
        note.send(number)
    waiting = redis_client.lrange(keys.queue(namespace, QUEUE), 0, -1)
    worker, key = worker_of(station), which(namespace, "w", QUEUE)
    with broken(redis_client, key):
        answer = worker.take(2)
        assert (fetched(answer), key in answer[2].decode()) == ([], True)
        assert redis_client.lrange(keys.queue(namespace, QUEUE), 0, -1) == waiting
    assert [id for id, _ in fetched(worker.take(2))] == waiting


def test_a_turn_that_cannot_note_who_is_awaited_fetches_nothing_and_one_that_could_answers_again(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    station.actor(print, actor_name="note").send(1)
    worker = worker_of(station)
    with broken(redis_client, keys.awaited(namespace)):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            worker.take(2)
        assert list(station.places().values()) == [["waiting"]]
    first = fetched(worker.repeat())
    with broken(redis_client, keys.awaited(namespace)):
        assert fetched(worker.repeat()) == first != []


def test_a_retry_is_written_whole_or_not_at_all_and_an_end_stands_whatever_became_of_its_marks(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    station.actor(print, actor_name="note").send(1)
    worker = worker_of(station)
    ((id, body),) = fetched(worker.take(1))
    with broken(redis_client, keys.due(namespace, QUEUE)):
        assert worker.take(0, [("retry", id, b"again", b"0")])[0] == b"e"
        assert redis_client.hget(keys.bodies(namespace, QUEUE), id) == body
    with broken(redis_client, keys.losses(namespace, QUEUE)):
        assert worker.take(0, [("done", id, b"", b"")])[0] == b"1"
    assert station.places() == {}


@pytest.mark.parametrize("which", [keys.queue, keys.bodies, keys.losses, keys.suspects])
def test_what_a_dead_worker_held_of_a_broken_queue_returns_once_it_is_mended_and_of_others_at_once(
    which: OfQueue, station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    note = station.actor(print, actor_name="note")
    for number in range(2):
        note.send(number)
    worker = worker_of(station, "gone")
    ids = [id for id, _ in fetched(worker.take(2))]
    redis_client.hset(keys.bodies(namespace, "whole"), "other", "body")
    redis_client.sadd(keys.acks(namespace, "gone", "whole"), "other")

    def reaped() -> tuple[int, list[str]]:
        found = reap(redis_client, station.broker.own_scripts, namespace, "gone", [QUEUE, "whole"], isolating=True)
        return found.returned, list(found.broken)

    with broken(redis_client, which(namespace, QUEUE)):
        assert [reaped() for _ in range(4)] == [(1, [QUEUE]), *[(0, [QUEUE])] * 3]
        assert worker.take(1) == b"fenced"
        assert redis_client.hexists(keys.workers(namespace), "gone")
    assert reaped() == (2, [])
    assert redis_client.lrange(keys.queue(namespace, QUEUE), 0, -1) == ids
    assert redis_client.hvals(keys.losses(namespace, QUEUE)) == [b"1", b"1"]
    assert not redis_client.exists(keys.workers(namespace), keys.beats(namespace))


def test_a_reaper_comes_again_for_what_a_broken_queue_held_back(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    station.actor(print, actor_name="note").send(1)
    worker_of(station, "gone").take(1)
    reaper = Reaper(
        redis_client, station.broker.own_scripts, namespace, [QUEUE], lost_after=timedelta(seconds=0.6), isolating=True
    )
    with capture_logs() as logs, broken(redis_client, keys.suspects(namespace, QUEUE)):
        wait_until(lambda: reaper.look() or [line for line in logs if line["event"] == "messages_not_returned_yet"])
        assert Verdicts(station.broker, [QUEUE]).suspects() == Suspects(0, one_at_a_time=False)
    wait_until(lambda: reaper.look() == 1)
    assert list(station.places().values()) == [["waiting"]]


@pytest.mark.parametrize("which", [keys.bodies, keys.dead_bodies, keys.dead_details])
def test_a_message_that_cannot_be_condemned_stays_held_until_it_can(
    which: OfQueue, station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    station.actor(print, actor_name="note").send(1)
    worker = worker_of(station)
    ((id, body),) = fetched(worker.take(1))
    asked = [keys.acks(namespace, "w", QUEUE), keys.held(namespace, "w", QUEUE)]
    of_queue = (keys.bodies, keys.dead, keys.dead_bodies, keys.dead_details, keys.losses, keys.deaths)
    asked += [key(namespace, QUEUE) for key in of_queue]

    def condemn() -> Any:
        return station.broker.own_scripts.condemn(keys=asked, args=[id, worker.deliveries[id], "{}"])

    with broken(redis_client, which(namespace, QUEUE)):
        for _ in range(2):
            with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
                condemn()
        assert station.places() == {id: ["w"]}
    assert condemn() == body
    assert station.places() == {id: ["dead"]}


def test_an_on_lost_that_a_broken_queue_refuses_is_said_and_sent_once_it_is_mended(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    note: Any = station.actor(print, actor_name="note")
    note.on_lost = print
    redis_client.hset(keys.dead_bodies(namespace, QUEUE), "id", note.message(1).encode())
    verdicts = Verdicts(station.broker, [QUEUE])
    with capture_logs() as logs, broken(redis_client, keys.due(namespace, QUEUE)):
        verdicts.tell(Apart(QUEUE, "id", "poison: killed 2 processes (lost, lost)"))
    assert [line["event"] for line in logs] == ["lost_not_told_yet"]
    verdicts.settle()
    assert station.places() == {b"id-lost": ["waiting"]}
