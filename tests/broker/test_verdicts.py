"""What follows from a verdict is done, also where Redis takes the verdict and nothing else, or its reply is lost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis

from fleet.broker import keys
from fleet.broker.broker import NotAccepted
from fleet.broker.reaper import Death, Reaped, reap
from fleet.clock import clock
from fleet.workers.board import Slot
from fleet.workers.board_slot import Phase
from fleet.workers.verdicts import Verdicts
from tests.broker.conftest import OwnRedis
from tests.broker.station import QUEUE, Station
from tests.broker.test_redis_faults import full
from tests.broker.turns import Turns, fetched

LATER = timedelta(minutes=5)
WORKER = "over-its-budget"


def running(station: Station) -> Slot:
    """A message, whose actor wants to know of its loss, in its body."""
    note = station.actor(lambda: None, actor_name="note")
    note.on_lost = lambda *_: None  # type: ignore[attr-defined]
    sent = note.send()
    turns = Turns(station.broker.client, station.broker.own_scripts, station.namespace, WORKER)
    ((id, _),) = fetched(turns.take(1))
    return Slot(
        number=0,
        phase=Phase.BODY,
        delivery=int(turns.deliveries[id]),
        id=id.decode(),
        queue=QUEUE,
        actor="note",
        message_id=sent.message_id,
        started=clock.monotonic(),
    )


def condemn(verdicts: Verdicts, slot: Slot) -> tuple[str, str] | None:
    return verdicts.condemn(WORKER, slot, "hard budget", lost_after=LATER)


def waits(station: Station) -> tuple[list[bytes], list[bytes]]:
    """Ids that wait, and that are delayed."""
    client, ns = station.broker.client, station.namespace
    ready: Any = client.lrange(keys.queue(ns, QUEUE), 0, -1)
    delayed: Any = client.zrange(keys.due(ns, QUEUE), 0, -1)
    return ready, delayed


def test_what_a_full_redis_does_not_take_is_told_when_it_does_and_ends_no_supervisor(
    own_station: Station, own_redis: OwnRedis
) -> None:
    slot, verdicts = running(own_station), Verdicts(own_station.broker, [QUEUE])
    told = (QUEUE, f"{slot.id}-lost")
    with full(own_redis.client):
        assert condemn(verdicts, slot) == told
        verdicts.hurry(told)  # its child is dead
        with pytest.raises(NotAccepted):
            verdicts.settle()
    assert list(own_station.letters()) == [str(slot.id).encode()]
    assert waits(own_station) == ([], [])
    for _ in range(2):
        verdicts.settle()
        assert waits(own_station) == ([told[1].encode()], [])


def test_a_verdict_whose_reply_was_lost_is_told_when_it_is_asked_again_and_only_then(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot, verdicts = running(station), Verdicts(station.broker, [QUEUE])
    asks = station.broker.own_scripts.condemn

    def loses_its_reply(**asked: Any) -> None:
        asks(**asked)
        raise redis.TimeoutError("no reply")

    monkeypatch.setattr(station.broker.own_scripts, "condemn", loses_its_reply)
    with pytest.raises(redis.TimeoutError):
        condemn(verdicts, slot)
    monkeypatch.undo()
    assert condemn(verdicts, slot) == (QUEUE, f"{slot.id}-lost")
    assert condemn(verdicts, slot) is None
    assert waits(station) == ([], [f"{slot.id}-lost".encode()])


def test_a_death_in_a_queue_that_nobody_knows_blames_nobody_and_returns_the_rest(station: Station) -> None:
    running(station)
    death = Death("SIGKILL", [("cut-shor…", "an id")])
    broker = station.broker
    assert reap(
        broker.client, broker.own_scripts, station.namespace, WORKER, [QUEUE], death=death, isolating=True
    ) == Reaped(1, (), {})
