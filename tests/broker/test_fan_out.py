"""A fan-out streams in bounded chunks; where it fails half-way it says how many messages were accepted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq.middleware import Middleware

from fleet.broker import keys
from fleet.broker.broker import NotAccepted
from fleet.broker.sealing import CHUNK, CHUNK_BYTES
from fleet.errors import MessageTooLarge
from tests.broker.conftest import OwnRedis
from tests.broker.station import QUEUE, Station


class Hears(Middleware):
    """Makes `send_many` build each message, and counts them."""

    def __init__(self) -> None:
        self.before = self.after = 0

    def before_enqueue(self, *_: Any) -> None:
        self.before += 1

    def after_enqueue(self, *_: Any) -> None:
        self.after += 1


def waiting(station: Station) -> int:
    return int(station.broker.client.llen(keys.queue(station.namespace, QUEUE)))  # type: ignore[arg-type]


@pytest.fixture(params=["heard", "unheard"])
def sender(request: pytest.FixtureRequest, own_redis: OwnRedis) -> Iterator[Station]:
    station = Station(own_redis.url, "own", *([Hears()] if request.param == "heard" else []))
    yield station
    station.stop()


def test_a_fan_out_that_redis_leaves_says_how_many_were_accepted(sender: Station, own_redis: OwnRedis) -> None:
    note = sender.actor(print, actor_name="note")

    def numbers() -> Iterator[tuple[int]]:
        for number in range(5 * CHUNK):
            if number == 2 * CHUNK + 7:
                own_redis.kill()
            yield (number,)

    with pytest.raises(NotAccepted) as failed:
        sender.broker.enqueue_calls(note, numbers())
    assert (failed.value.accepted, failed.value.unknown) == (2 * CHUNK, CHUNK)
    assert "The first 1,000 messages were accepted" in "".join(failed.value.__notes__)
    own_redis.start()
    assert waiting(sender) == 2 * CHUNK


def test_what_is_too_large_half_way_says_how_many_were_accepted_before(sender: Station) -> None:
    note = sender.actor(print, actor_name="note")
    calls = [(number,) for number in range(CHUNK + 3)] + [("x" * 2_000_000,)]
    with pytest.raises(MessageTooLarge) as failed:
        sender.broker.enqueue_calls(note, calls)
    assert "The first 500 messages were accepted, the others were not sent" in "".join(failed.value.__notes__)
    assert waiting(sender) == CHUNK


def test_an_iterable_that_breaks_loses_nothing_of_what_was_accepted(sender: Station) -> None:
    note = sender.actor(print, actor_name="note")

    def breaks() -> Iterator[tuple[int]]:
        yield from ((number,) for number in range(CHUNK))
        raise LookupError("the rows ended badly")

    with pytest.raises(LookupError) as failed:
        sender.broker.enqueue_calls(note, breaks())
    assert "The first 500 messages were accepted" in "".join(failed.value.__notes__)
    assert waiting(sender) == CHUNK


def test_large_messages_are_sent_in_chunks_of_a_few_megabytes(sender: Station) -> None:
    note = sender.actor(print, actor_name="note")
    before = sender.broker.client.info("commandstats")
    assert sender.broker.enqueue_calls(note, (("x" * 500_000,) for _ in range(40))) == 40
    after = sender.broker.client.info("commandstats")
    calls = after["cmdstat_evalsha"]["calls"] - before.get("cmdstat_evalsha", {"calls": 0})["calls"]  # type: ignore[index,union-attr]
    assert 40 * 500_000 // CHUNK_BYTES <= calls <= 8


def test_messages_of_several_queues_are_accepted_in_one_call_and_each_queue_keeps_its_order(station: Station) -> None:
    note = station.actor(print, actor_name="note")
    names = ("one", "two", "three")
    messages = [note.message(number).copy(queue_name=names[number % 3]) for number in range(30)]
    sent: list[dramatiq.Message[Any]] = list(station.broker.enqueue_many(messages))
    assert [message.args[0] for message in sent] == list(range(30))
    for place, name in enumerate(names):
        ids = station.broker.client.lrange(keys.queue(station.namespace, name), 0, -1)
        bodies: Any = station.broker.client.hmget(keys.bodies(station.namespace, name), ids)  # type: ignore[arg-type]
        assert [dramatiq.Message.decode(body).args[0] for body in bodies] == list(range(place, 30, 3))


def test_every_hook_is_called_once_a_message(own_redis: OwnRedis) -> None:
    hears = Hears()
    station = Station(own_redis.url, "own", hears)
    note = station.actor(print, actor_name="note")
    assert station.broker.enqueue_calls(note, ((number,) for number in range(1_234))) == 1_234
    assert (hears.before, hears.after) == (1_234, 1_234)
    station.stop()
