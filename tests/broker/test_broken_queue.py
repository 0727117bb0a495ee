"""A queue one of whose keys is no longer of its type stands still; nothing of it is lost, and the others go on."""

from __future__ import annotations

import pytest
import redis
from structlog.testing import capture_logs

from fleet.broker import keys, pump
from fleet.broker.broker import NotAccepted
from tests.broker.station import QUEUE, Station
from tests.broker.turns import Turns, fetched
from tests.waiting import wait_until

BROKEN = {
    "list": keys.queue,
    "bodies": keys.bodies,
    "delays": keys.due,
    "delays of stock producers": lambda namespace, name: keys.queue(namespace, keys.delayed(name)),
}


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
    aside = f"{key}.aside"
    note.send(1)
    note.send_with_options(args=(2,), delay=10)
    if redis_client.exists(key):
        redis_client.rename(key, aside)
    redis_client.set(key, "no longer what it was")
    with capture_logs() as logs:
        station.work()
        station.broker.enqueue(note.message(3).copy(queue_name="whole"))
        wait_until(lambda: 3 in ran)
        wait_until(lambda: [line for line in logs if line["event"] == "queue_broken"])
        redis_client.delete(key)
        if redis_client.exists(aside):
            redis_client.rename(aside, key)
        wait_until(lambda: sorted(ran) == [1, 2, 3])
        station.until_empty()
        wait_until(lambda: [line for line in logs if line["event"] == "queue_mended"])
    assert [line["queue"] for line in logs if line["event"] == "queue_broken"] == [QUEUE]


def test_an_end_that_a_broken_key_refuses_is_written_once_it_is_mended(
    station: Station, redis_client: redis.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "SAFETY_SECONDS", 0.3)

    def fail() -> None:
        raise ValueError("for good")

    dies = station.actor(fail, max_retries=0)
    key = keys.dead_details(namespace, QUEUE)
    redis_client.set(key, "no longer what it was")
    with capture_logs() as logs:
        worker = station.work()
        dies.send()
        wait_until(lambda: [line for line in logs if line["event"] == "queue_broken"])
        assert worker.pump.held == 1, "it is neither ended nor lost"
        redis_client.delete(key)
        wait_until(lambda: station.letters())
    assert worker.ends["dead"] == 1
    station.until_empty()


@pytest.mark.parametrize("which", ["list", "bodies", "delays"])
def test_a_send_to_a_broken_queue_is_refused_whole(
    which: str, station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    note = station.actor(print, actor_name="note")
    key = BROKEN[which](namespace, QUEUE)
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
