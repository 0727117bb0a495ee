"""What a worker of one release cannot run it leaves to the other: nothing is lost, nothing is run twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from dramatiq import Message
from structlog.testing import capture_logs

from fleet import wire
from fleet.broker import keys
from fleet.broker.ends import Fetched
from fleet.workers.other_release import OtherReleases
from fleet.workers.reading import FleetMessage
from tests.broker.station import QUEUE, Station
from tests.waiting import wait_until


@pytest.fixture
def other(redis_url: str, namespace: str) -> Iterator[Station]:
    """The other release: a broker and workers of its own on the same queue."""
    made = Station(redis_url, namespace)
    yield made
    made.stop()


def put(station: Station, actor: str = "added", *args: Any, **options: Any) -> str:
    message: Message[Any] = Message(QUEUE, actor, args, {}, options)
    return str(station.broker.enqueue(message).options["redis_message_id"])


LONG_AGO = 1  # a millisecond after the epoch


def left(client: redis.Redis, namespace: str, id: str) -> bool:
    """Whether a message that waits or is delayed was left."""
    body = client.hget(keys.bodies(namespace, QUEUE), id)
    return body is not None and wire.LEFT in json.loads(body)["options"]


def test_a_message_of_an_actor_that_only_the_other_release_has_is_run_there_once(
    station: Station, other: Station, redis_client: redis.Redis, namespace: str
) -> None:
    ran: list[int] = []
    station.actor(print, actor_name="known")
    station.work()
    id = put(station, "added", 7)
    wait_until(lambda: left(redis_client, namespace, id))
    other.actor(ran.append, actor_name="added")
    other.work()
    station.until_empty(20)
    assert ran == [7]
    assert station.letters() == {}


def test_a_message_whose_arguments_only_the_other_release_takes_is_run_there_and_its_body_began_nowhere_else(
    station: Station, other: Station, redis_client: redis.Redis, namespace: str
) -> None:
    here: list[int] = []
    there: list[tuple[int, str]] = []

    def old(number: int) -> None:
        here.append(number)

    def new(number: int, currency: str = "EUR") -> None:
        there.append((number, currency))

    station.actor(old, actor_name="charge")
    station.work()
    id = put(station, "charge", 7, "CHF")
    wait_until(lambda: left(redis_client, namespace, id))
    other.actor(new, actor_name="charge")
    other.work()
    station.until_empty(20)
    assert (here, there) == ([], [(7, "CHF")])
    assert station.letters() == {}


def test_what_nobody_could_run_for_half_an_hour_is_a_dead_letter_that_says_why(station: Station) -> None:
    station.actor(lambda: None, actor_name="job")
    station.work()
    gone = put(station, "gone", left=LONG_AGO)
    unfit = put(station, "job", 1, left=LONG_AGO, max_retries=0)
    station.until_empty()
    reasons = {id.decode(): json.loads(raw)["reason"] for id, raw in station.letters().items()}
    assert reasons == {gone: "unknown actor", unfit: "failed"}


def test_arguments_that_no_release_takes_are_retried_like_any_failure_and_not_left_again(station: Station) -> None:
    station.actor(lambda: None, actor_name="job")
    station.work()
    id = put(station, "job", 1, left=LONG_AGO, max_retries=2)
    station.until_empty()
    (details,) = station.letters().values()
    assert json.loads(details)["attempts"] == 3, id


def test_many_come_back_more_rarely_than_few(station: Station, redis_client: redis.Redis, namespace: str) -> None:
    others = OtherReleases()
    delays = [others._delay_ms() for _ in range(1_000)]
    assert delays[0] == 250
    assert 4_500 < delays[-1] <= 5_250, "a thousand, two hundred a second"


def test_a_type_error_of_the_body_itself_is_a_failure_like_any_other(station: Station) -> None:
    ran: list[int] = []

    def broken(number: int) -> None:
        ran.append(number)
        raise TypeError("broken(number) takes 1 positional argument but 2 were given")

    station.actor(broken, actor_name="broken", max_retries=0)
    station.work()
    id = put(station, "broken", 1, max_retries=0)
    station.until_empty()
    assert ran == [1]
    assert [raw.decode() for raw in station.letters()] == [id]


def test_it_is_said_once_however_many_messages_a_fan_out_brings(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    station.actor(print, actor_name="known")
    with capture_logs() as logs:
        station.work()
        ids = [put(station, "of a fan-out") for _ in range(20)]
        wait_until(lambda: all(left(redis_client, namespace, id) for id in ids))
    said = [line for line in logs if line["event"] == "message_left_to_another_release"]
    assert [(line["actor"], line["why"]) for line in said] == [("of a fan-out", "it is not declared here")]


def test_names_that_anybody_makes_up_are_neither_kept_nor_said_without_bound() -> None:
    others, why = OtherReleases(), "it is not declared here"
    with capture_logs() as logs:
        for number in range(2_000):
            message: Message[Any] = Message(QUEUE, f"{number}{'x' * 10_000}", (), {}, {})
            fetched = Fetched("worker", QUEUE, message.message_id, number, message.encode())
            assert others.left(FleetMessage(message, fetched), why) is not None
    assert len(others._said) <= 1_024
    assert len(logs) == 2_000 and max(len(line["actor"]) for line in logs) == 200


def test_a_retry_in_the_release_that_runs_it_begins_anew(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    def fail() -> None:
        raise ValueError

    station.actor(fail, actor_name="fail", min_backoff=60_000, max_backoff=60_000)
    station.work()
    id = put(station, "fail", left=LONG_AGO)
    wait_until(lambda: redis_client.zcard(keys.due(namespace, QUEUE)))
    assert not left(redis_client, namespace, id)
