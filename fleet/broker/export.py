"""The way back to stock Dramatiq: delayed messages leave the sorted set for stock's `.DQ` lists.

A stock worker knows nothing of the sorted sets, so that what is delayed there waits for a Nightshift worker; all else
a stock worker takes over as it stands. Each message is encoded anew as a stock producer would have sent it, with its
due time as `eta`, and moved by one script a bounded chunk, only if nobody touched it meanwhile. A run that is cut short
is run again: what was moved stays moved, and nothing is moved twice.

A Nightshift worker moves them back at its next fetch. So the export refuses while one serves the queue; one that is on
record and silent is watched for as long as a reaper would, and reaped.

Not guaranteed: that a Nightshift worker which starts during the export waits for it. Nothing is lost by that; its
messages are delayed in the sorted set again, with the same due time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import redis
from dramatiq import Message
from dramatiq.errors import DecodeError

from fleet import wire
from fleet.broker import keys
from fleet.broker.broker import FleetBroker
from fleet.broker.reaper import LOST_AFTER, Reaper
from fleet.clock import clock
from fleet.errors import FleetError, ServerUnreachable

CHUNK = 100  # messages a script
_PAUSES = (0.05, 0.2, 0.8)  # between the tries of one chunk; each try is safe to repeat


class StillServed(FleetError):
    """Raised when delayed messages are to leave a queue that a Nightshift worker serves."""


@dataclass
class Exported:
    """What became of a chunk: moved, left because it cannot be read, left because it changed meanwhile."""

    moved: int = 0
    unreadable: int = 0
    changed: int = 0

    def __add__(self, other: Exported) -> Exported:
        return Exported(self.moved + other.moved, self.unreadable + other.unreadable, self.changed + other.changed)


def delayed(broker: FleetBroker, queues: Sequence[str]) -> dict[str, int]:
    """Queue -> how many messages are delayed in its sorted set."""
    with broker.client.pipeline(transaction=False) as pipe:
        for queue in queues:
            pipe.zcard(keys.due(broker.namespace, queue))
        return dict(zip(queues, map(int, pipe.execute()), strict=True))


def serving(broker: FleetBroker, queues: Sequence[str]) -> dict[str, list[str]]:
    """Nightshift worker on record -> which of these queues it serves."""
    record: Any = broker.client.hgetall(keys.workers(broker.namespace))
    found = {id.decode(): sorted(set(json.loads(raw)) & set(queues)) for id, raw in record.items()}
    return {id: served for id, served in found.items() if served}


def require_nobody_serves(
    broker: FleetBroker,
    queues: Sequence[str],
    *,
    called: Callable[[str], str] = str,
    lost_after: timedelta = LOST_AFTER,
) -> None:
    """Return once no Nightshift worker serves these queues, which takes up to `lost_after` where one was killed.

    What a worker held that turns out to be dead is returned to its queues. Raises `StillServed` for one that beats.
    """
    ns = broker.namespace
    reaper = Reaper(broker.client, broker.own_scripts, ns, queues, lost_after=lost_after)
    first: dict[str, bytes | None] = {}
    ends = clock.monotonic() + 2 * lost_after.total_seconds()
    while found := serving(broker, queues):
        counts: Any = broker.client.hmget(keys.beats(ns), list(found))
        beats = dict(zip(found, counts, strict=True))
        alive = [id for id in found if beats[id] != first.setdefault(id, beats[id])]
        if alive or clock.monotonic() > ends:
            raise _still_served({id: found[id] for id in alive or found}, called)
        reaper.look()
        time.sleep(lost_after.total_seconds() / 20)


def export(broker: FleetBroker, queue: str) -> Iterator[Exported]:
    """Move a queue's delayed messages, soonest first, a chunk at a time; yields what became of each chunk.

    Its suspects, which wait to run alone, return to the queue before.

    Raises `StillServed` when a Nightshift worker begins to serve the queue, `ServerUnreachable` when Redis goes; in
    both cases it may be run again.
    """
    ns, stays = broker.namespace, 0
    # Stock knows nothing of suspects either; they are at the front again, where they were.
    while broker.client.lmove(keys.suspects(ns, queue), keys.queue(ns, queue), "RIGHT", "LEFT"):
        pass
    while True:
        if found := serving(broker, [queue]):
            raise _still_served(found, str)
        due: Any = broker.client.zrange(keys.due(ns, queue), stays, stays + CHUNK - 1, withscores=True)
        if not due:
            return
        stored: Any = broker.client.hmget(keys.bodies(ns, queue), [id for id, _ in due])
        args: list[Any] = []
        for (id, score), body in zip(due, stored, strict=True):
            fresh = _as_stock(queue, id, body, int(score))
            if fresh is not None:
                args += [id, int(score), body, fresh]
        moved = _move(broker, queue, args)
        became = Exported(moved, len(due) - len(args) // 4, len(args) // 4 - moved)
        stays += became.unreadable + became.changed
        yield became


def _still_served(found: dict[str, list[str]], called: Callable[[str], str]) -> StillServed:
    told = "; ".join(f"{called(id)} serves {', '.join(served)}" for id, served in sorted(found.items()))
    return StillServed(
        f"A Nightshift worker would move delayed messages back at once: {told}. Stop it, then try again."
    )


def _as_stock(queue: str, id: bytes, body: bytes | None, due: int) -> bytes | None:
    """The body that a stock producer would have stored under this id, None if this one cannot be read."""
    try:
        message: Message[Any] = Message.decode(body or b"")
        message.options.pop(wire.DUE_AT, None)  # `eta` says it to both
        options = {"eta": due, "redis_message_id": id.decode()}
        return message.copy(queue_name=keys.delayed(queue), options=options).encode()
    except (DecodeError, TypeError, KeyError, ValueError, AttributeError):
        return None


def _move(broker: FleetBroker, queue: str, args: list[Any]) -> int:
    ns, stock = broker.namespace, keys.delayed(queue)
    asked = [keys.due(ns, queue), keys.bodies(ns, queue), keys.queue(ns, stock), keys.bodies(ns, stock)]
    for pause in (*_PAUSES, None):
        try:
            return int(broker.own_scripts.export(keys=asked, args=args)) if args else 0
        except (redis.ConnectionError, redis.TimeoutError) as error:
            if pause is None:
                raise ServerUnreachable(f"Redis went while {queue!r} was exported ({error}); run it again.") from error
            time.sleep(pause)
    raise AssertionError("the last pause is None")
