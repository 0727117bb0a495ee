"""Whatever bytes lie in a queue, they become a dead letter that says why, and the lane goes on."""

from __future__ import annotations

import json
import math
from typing import Any

import dramatiq
import pytest
import redis
from structlog.testing import capture_logs

from fleet.broker import keys
from fleet.errors import MessageTooLarge
from tests.broker.station import QUEUE, Station, stock
from tests.broker.turns import Turns, fetched
from tests.waiting import wait_until


def message(**changes: Any) -> bytes:
    sound = {"queue_name": QUEUE, "actor_name": "note", "args": [1], "kwargs": {}, "options": {}, "message_id": "m"}
    return json.dumps({**sound, "message_timestamp": 1, **changes}).encode()


LEFT = {"left": 1}  # other releases had their turn
LONGEST = 10**4_300 - 1  # a digit more, and Python neither reads nor writes it

POISON = {
    "no utf-8": (b"\xff\xfe\x00\x80", "undecodable"),
    "empty": (b"", "undecodable"),
    "cut off": (message()[:40], "undecodable"),
    "a number": (b"7", "undecodable"),
    "null": (b"null", "undecodable"),
    "a list": (b"[]", "undecodable"),
    "no message": (b'{"a": 1}', "undecodable"),
    "a field too many, of a newer version": (message(priority=3), "newer version"),
    "a hundred thousand brackets": (b"[" * 100_000, "undecodable"),
    "no options": (message(options=None), "undecodable"),
    "options in a list": (message(options=[]), "undecodable"),
    "a queue that is no name": (message(queue_name=7), "undecodable"),
    "an actor that is no name": (message(actor_name=["note"]), "undecodable"),
    "an unknown actor": (message(actor_name="gone", options=LEFT), "unknown actor"),
    "no actor": (message(actor_name=None), "undecodable"),
    "an id that is a mapping": (message(message_id={}), "undecodable"),
    "no id": (message(message_id=None), "undecodable"),
    "arguments that are no list": (message(args=5), "undecodable"),
    "too many arguments": (message(args=[1, 2, 3], options={"max_retries": 0, **LEFT}), "failed"),
    "a count of retries that is no number": (message(args=[1, 2, 3], options={"retries": "many", **LEFT}), "hook"),
    "a time that is no time": (
        message(args=[1, 2, 3], options={"max_retries": 0, **LEFT}, message_timestamp=1e300),
        "failed",
    ),
    "a count of broken hooks that is no number": (
        message(args=[1, 2, 3], options={"retries": "many", "hook_failures": "many", **LEFT}),
        "hook",
    ),
    **{
        f"a count of broken hooks that is {told}": (
            message(args=[1, 2, 3], options={"retries": "many", "hook_failures": found, **LEFT}),
            "hook",
        )
        for told, found in {"far below zero": -(10**12), "true": True, "NaN": math.nan, "huge": LONGEST}.items()
    },
    "a count of retries that is too long to be counted on": (
        message(args=[1, 2, 3], options={"retries": LONGEST, "max_retries": 0, **LEFT}),
        "failed",
    ),
    "5 MB of arguments": (message(args=["x" * 5_000_000]), "too large"),
}


def test_each_kind_of_poison_is_a_dead_letter_with_its_reason_and_the_lane_goes_on(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    ran: list[int] = []
    note = station.actor(ran.append, actor_name="note")
    for name, (body, _) in POISON.items():
        redis_client.hset(keys.bodies(namespace, QUEUE), name, body)
        redis_client.rpush(keys.queue(namespace, QUEUE), name)
    note.send(2)
    worker = station.work()
    wait_until(lambda: ran == [2])
    station.until_empty()
    reasons = {id.decode(): json.loads(raw)["reason"] for id, raw in station.letters().items()}
    assert reasons == {name: reason for name, (_, reason) in POISON.items()}
    kept = redis_client.hgetall(keys.dead_bodies(namespace, QUEUE))
    assert {id.decode() for id in kept} == set(POISON)
    assert kept[b"no utf-8"] == POISON["no utf-8"][0]
    assert all(thread.is_alive() for thread in (*worker.workers, worker.pump, worker._watch, worker.wake) if thread)


def test_options_that_nest_too_deep_to_be_written_again_are_a_dead_letter(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    """A hook that breaks has them written again, with more calls below than there were when they were read."""

    def fail() -> None:
        raise ValueError("not tonight")

    station.actor(fail, actor_name="note")
    body = message(args=[], options={"retries": "many", "nest": 0})
    for depth in range(850, 1_000):
        nest = b"[" * depth + b"]" * depth
        redis_client.hset(keys.bodies(namespace, QUEUE), str(depth), body.replace(b'"nest": 0', b'"nest": ' + nest))
        redis_client.rpush(keys.queue(namespace, QUEUE), str(depth))
    with capture_logs():  # each break is said with its traceback
        station.work()
        station.until_empty()
    assert len(station.letters()) == 150


@pytest.mark.parametrize("id", [b"\xff\xfe", b"", b"a\nb", b"\x00", "ü".encode(), b"%s {x}"])
def test_ids_of_any_bytes_are_worked_on_and_die_like_others(
    id: bytes, station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    ran: list[int] = []
    station.actor(ran.append, actor_name="note")
    for tail, body in (
        (b"1", message()),
        (b"2", b"poison"),
        (b"3", message(args=[1, 2], options={"max_retries": 1, **LEFT})),
    ):
        redis_client.hset(keys.bodies(namespace, QUEUE), id + tail, body)
        redis_client.rpush(keys.queue(namespace, QUEUE), id + tail)
    with capture_logs() as logs:
        worker = station.work()
        station.until_empty()
    assert ran == [1]
    assert set(station.letters()) == {id + b"2", id + b"3"}
    assert worker.pump.is_alive()
    for line in logs:
        json.dumps(line, default=str).encode()
        str(line.get("id", "")).encode()  # what a log writes has to be writable


def test_five_megabytes_put_by_a_stock_producer_are_a_dead_letter(
    station: Station, redis_url: str, namespace: str
) -> None:
    ran: list[int] = []
    station.actor(lambda x: ran.append(len(x)), actor_name="note")
    theirs = stock(redis_url, namespace)
    note: Any = dramatiq.actor(print, broker=theirs, queue_name=QUEUE, actor_name="note")
    large = note.send("x" * 5_000_000)
    note.send("x")
    station.work()
    wait_until(lambda: ran == [1])
    station.until_empty()
    assert [id.decode() for id in station.letters()] == [large.options["redis_message_id"]]


def test_an_id_that_lies_in_the_list_without_a_body_is_passed_over(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    ran: list[int] = []
    note = station.actor(ran.append, actor_name="note")
    redis_client.rpush(keys.queue(namespace, QUEUE), *[f"flushed {n}" for n in range(50)])
    note.send(1)
    station.work(threads=1, prefetch=1)
    wait_until(lambda: ran == [1])
    station.until_empty()
    assert station.letters() == {}


def test_a_flood_of_ids_without_a_body_is_passed_over_a_bounded_number_a_turn_and_the_next_comes_at_once(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    redis_client.rpush(keys.queue(namespace, QUEUE), *[f"flushed {n}" for n in range(2_500)])
    station.actor(print, actor_name="note").send(1)
    turns = Turns(redis_client, station.broker.own_scripts, namespace, "w")
    answer = turns.take(1)
    assert (fetched(answer), answer[1]) == ([], b"0")
    assert redis_client.llen(keys.queue(namespace, QUEUE)) == 1_501
    assert [len(fetched(turns.take(1))) for _ in range(2)] == [0, 1]


def test_a_message_over_the_limit_is_refused_at_send_by_its_actors_name_and_size(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    note = station.actor(print, actor_name="note")
    with pytest.raises(MessageTooLarge, match=r"'note' is 2,000,\d\d\d bytes; at most 1,048,576"):
        note.send("x" * 2_000_000)
    with pytest.raises(MessageTooLarge):
        list(station.broker.enqueue_many([note.message("x"), note.message("x" * 2_000_000)]))
    assert redis_client.llen(keys.queue(namespace, QUEUE)) == 0


@pytest.mark.parametrize("said", ["for good", "\N{SNOWMAN}" * 100_000])
def test_a_message_just_under_the_limit_has_all_its_retries_whatever_room_its_traceback_takes(
    said: str, station: Station
) -> None:
    tries: list[int] = []

    def fail(text: str) -> None:
        tries.append(len(text))
        raise ValueError(said)

    station.actor(fail, max_retries=5).send("x" * 1_048_000)
    station.work()
    (letter,) = wait_until(station.letters).values()
    assert (json.loads(letter)["reason"], tries) == ("failed", [1_048_000] * 6)


def test_published_bytes_that_name_no_queue_do_not_end_the_subscription(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    worker = station.work()
    wait_until(lambda: redis_client.pubsub_numsub(keys.wake(namespace))[0][1] == 1)
    redis_client.publish(keys.wake(namespace), b"\xff\xfe")
    redis_client.publish(keys.wake(namespace), "nobody's queue")
    ran: list[int] = []
    station.actor(ran.append, actor_name="note").send(1)  # of a queue that is declared only now
    wait_until(lambda: ran == [1])
    assert worker.wake.is_alive()
