"""A service without the application's code sends by name, and is refused what no worker takes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta

import dramatiq
import pytest
import redis

import fleet
from fleet import catalogue
from fleet.broker import FleetBroker, keys
from fleet.catalogue import publish_catalogue, read_catalogue
from fleet.errors import ActorGone, ArgumentsInvalid, NotDeclared
from fleet.workers import watch
from fleet.workers.worker import FleetWorker
from tests.broker.station import LOST_AFTER, QUEUE, Station
from tests.waiting import wait_until

RAN: list[tuple[int, str]] = []


@pytest.fixture
def elsewhere(redis_url: str, namespace: str) -> Iterator[fleet.catalogue.Connection]:
    broker = FleetBroker(url=redis_url, namespace=namespace, middleware=[])

    @dramatiq.actor(broker=broker, queue_name="runs")
    def submit_approved_run(run_id: int, note: str = "") -> None:
        RAN.append((run_id, note))

    worker = FleetWorker(broker, worker_threads=1)
    worker.start()
    yield fleet.connect(redis_url, namespace=namespace)
    worker.stop()


def test_a_message_sent_by_name_runs(elsewhere: fleet.catalogue.Connection) -> None:
    elsewhere.send("submit_approved_run", run_id=17)
    wait_until(lambda: (17, "") in RAN)


def test_an_unknown_name_asks_what_was_meant(elsewhere: fleet.catalogue.Connection) -> None:
    with pytest.raises(NotDeclared, match="Did you mean 'submit_approved_run'"):
        elsewhere.send("submit_aproved_run", run_id=17)


@pytest.mark.parametrize("arguments", [{}, {"run_id": 1, "colour": "red"}])
def test_arguments_that_no_worker_takes_are_refused(
    elsewhere: fleet.catalogue.Connection, arguments: dict[str, object]
) -> None:
    with pytest.raises(ArgumentsInvalid, match="submit_approved_run"):
        elsewhere.send("submit_approved_run", **arguments)


DAY_MS = 24 * 3_600_000


def test_an_actor_that_no_worker_published_for_long_is_refused_with_when_it_was_and_is_taken_off_the_list(
    redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    old, new = (FleetBroker(url=redis_url, namespace=namespace, middleware=[]) for _ in range(2))
    dramatiq.actor(print, broker=old, queue_name="runs", actor_name="gone")
    dramatiq.actor(print, broker=old, queue_name="runs", actor_name="stays")
    dramatiq.actor(print, broker=new, queue_name="runs", actor_name="stays")
    publish_catalogue(old)
    age(redis_client, namespace, days=6)
    assert set(read_catalogue(new)) == {"gone", "stays"}
    age(redis_client, namespace, days=8)
    assert read_catalogue(new) == {}
    with pytest.raises(ActorGone, match=r"knows 'gone' any more: one last published it at 20\d\d-.* UTC"):
        fleet.connect(redis_url, namespace=namespace).send("gone")
    publish_catalogue(new)
    assert redis_client.hkeys(keys.catalogue(namespace)) == [b"stays"]
    assert fleet.connect(redis_url, namespace=namespace).send("stays").actor_name == "stays"
    with pytest.raises(NotDeclared, match="Known: stays"):
        fleet.connect(redis_url, namespace=namespace).send("gone")


def age(client: redis.Redis, namespace: str, days: int) -> None:
    """Make every entry so many days old."""
    for name, raw in client.hgetall(keys.catalogue(namespace)).items():
        entry = json.loads(raw) | {"published": int(time.time() * 1000) - days * DAY_MS}
        client.hset(keys.catalogue(namespace), name, json.dumps(entry))


def test_a_connection_that_lives_for_long_reads_the_catalogue_again(
    redis_url: str, redis_client: redis.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FleetBroker(url=redis_url, namespace=namespace, middleware=[])
    dramatiq.actor(print, broker=broker, queue_name="runs", actor_name="gone")
    publish_catalogue(broker)
    connection = fleet.connect(redis_url, namespace=namespace)
    connection.send("gone")
    age(redis_client, namespace, days=8)
    connection.send("gone")  # as it read it a moment ago
    monkeypatch.setattr(catalogue, "_READ_AGAIN_AFTER", timedelta(0))
    with pytest.raises(ActorGone):
        connection.send("gone")


def test_a_worker_publishes_its_actors_again_while_it_works(
    station: Station, redis_client: redis.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_PUBLISH_EVERY_SECONDS", 0.05)
    station.actor(print, actor_name="note")
    beating = watch.Watch(
        station.broker.client,
        station.broker.own_scripts,
        namespace,
        lambda: "a worker",
        lambda: [QUEUE],
        trim=lambda queue: 0,
        publish=lambda: publish_catalogue(station.broker),
        lost_after=LOST_AFTER,
    )
    beating.start()
    try:
        wait_until(lambda: "note" in read_catalogue(station.broker))
        age(redis_client, namespace, days=8)
        wait_until(lambda: "note" in read_catalogue(station.broker))
    finally:
        beating.stop()
