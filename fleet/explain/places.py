"""Where a message stands: looked up by its id in Redis, never by reading a whole queue.

By its Dramatiq id alone (what `send` returns and logs name) it is found if it runs, or is among the first few hundred
that wait, are delayed, or the latest that died of a queue: their bodies are read.

Not guaranteed: one instant for all figures. On failure: what redis-py raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from dramatiq import Message
from dramatiq.encoder import JSONEncoder
from dramatiq.errors import DecodeError

from fleet import wire
from fleet.broker import FleetBroker, keys
from fleet.errors import FleetError

LOOKED_AT = 20_000  # places of a list from either end: about half a millisecond of the server's
SEARCHED = 300  # bodies a queue that are read for a message's own id

Stands = Literal["waiting", "suspect", "delayed", "stock delayed", "held", "dead"]


@dataclass(frozen=True)
class Place:
    """Where a message stands in a queue.

    `ahead` are those before it of `length`, None where it is further in than was looked. `due` and `died` are real
    time. `worker` holds it; None where nobody on record does. `losses` counts workers that were lost with it.
    """

    queue: str
    id: str
    stands: Stands
    message: Message[Any] | None
    ahead: int | None = None
    length: int = 0
    due: datetime | None = None
    died: datetime | None = None
    details: dict[str, Any] | None = None
    worker: str | None = None
    losses: int = 0


def find(broker: FleetBroker, queues: Iterable[str], wanted: str) -> list[Place]:
    """Every place of a message with this id in Redis; without one, those of a message with this Dramatiq id."""
    names = sorted(queues)
    raw = _raw(wanted)
    places = [place for name in _holding(broker, names, raw) if (place := _place(broker, name, raw)) is not None]
    if places:
        return places
    found = [(name, id) for name in names for id in _searched(broker, name, wanted)]
    return [place for name, id in found if (place := _place(broker, name, id)) is not None]


def _holding(broker: FleetBroker, queues: Sequence[str], id: bytes) -> list[str]:
    """The queues that know an id."""
    ns = broker.namespace
    with broker.client.pipeline(transaction=False) as pipe:
        for name in queues:
            pipe.hexists(keys.bodies(ns, name), id)
            pipe.hexists(keys.bodies(ns, keys.delayed(name)), id)
            pipe.zscore(keys.dead(ns, name), id)
        rows = pipe.execute()
    return [name for at, name in enumerate(queues) if rows[3 * at] or rows[3 * at + 1] or rows[3 * at + 2] is not None]


def _place(broker: FleetBroker, queue: str, id: bytes) -> Place | None:
    ns, shown = broker.namespace, id.decode(errors="backslashreplace")
    with broker.client.pipeline(transaction=True) as pipe:
        pipe.hget(keys.bodies(ns, queue), id)
        pipe.hget(keys.bodies(ns, keys.delayed(queue)), id)
        pipe.hget(keys.dead_bodies(ns, queue), id)
        pipe.zscore(keys.due(ns, queue), id)
        pipe.zscore(keys.dead(ns, queue), id)
        pipe.hget(keys.dead_details(ns, queue), id)
        pipe.lpos(keys.suspects(ns, queue), id, maxlen=LOOKED_AT)  # type: ignore[arg-type]
        pipe.llen(keys.suspects(ns, queue))
        pipe.llen(keys.queue(ns, queue))
        pipe.lpos(keys.queue(ns, queue), id, maxlen=LOOKED_AT)  # type: ignore[arg-type]
        pipe.lpos(keys.queue(ns, queue), id, rank=-1, maxlen=LOOKED_AT)  # type: ignore[arg-type]
        pipe.hget(keys.losses(ns, queue), id)
        pipe.hgetall(keys.workers(ns))
        body, stock, dead, due, died, details, suspect, suspects, length, near, far, losses, workers = pipe.execute()
    lost = int(losses or 0)
    if died is not None:
        known = json.loads(details) if details else {}
        return Place(queue, shown, "dead", _message(dead), died=wire.from_ms(int(died)), details=known)
    if stock is not None and body is None:
        return Place(queue, shown, "stock delayed", _message(stock))
    if body is None:
        return None
    message = _message(body)
    if due is not None:
        return Place(queue, shown, "delayed", message, due=wire.from_ms(int(due)), losses=lost)
    if suspect is not None:
        return Place(queue, shown, "suspect", message, suspect, suspects, losses=lost)
    if (at := near if near is not None else far) is not None:
        return Place(queue, shown, "waiting", message, at, length, losses=lost)
    worker = _holder(broker, queue, id, workers)
    if worker is None and length > 2 * LOOKED_AT:
        return Place(queue, shown, "waiting", message, None, length, losses=lost)
    return Place(queue, shown, "held", message, worker=worker, losses=lost)


def _holder(broker: FleetBroker, queue: str, id: bytes, workers: dict[bytes, bytes]) -> str | None:
    """The worker that holds a message of a queue."""
    serving = [worker.decode() for worker, queues in workers.items() if queue.encode() in queues]
    with broker.client.pipeline(transaction=False) as pipe:
        for worker in serving:
            pipe.sismember(keys.acks(broker.namespace, worker, queue), id)  # type: ignore[arg-type]
        held = pipe.execute()
    return next((worker for worker, holds in zip(serving, held, strict=True) if holds), None)


def _searched(broker: FleetBroker, queue: str, wanted: str) -> list[bytes]:
    """The ids in Redis of messages with a Dramatiq id, among the first and latest of a queue."""
    ns = broker.namespace
    with broker.client.pipeline(transaction=False) as pipe:
        pipe.lrange(keys.queue(ns, queue), 0, SEARCHED - 1)
        pipe.zrange(keys.due(ns, queue), 0, SEARCHED - 1)
        pipe.zrevrange(keys.dead(ns, queue), 0, SEARCHED - 1)
        waiting, delayed, dead = pipe.execute()
    found = []
    for key, ids in ((keys.bodies(ns, queue), [*waiting, *delayed]), (keys.dead_bodies(ns, queue), dead)):
        bodies: Any = broker.client.hmget(key, ids) if ids else []
        sign = json.dumps(wanted).encode()
        # The quick look first: few bodies hold the id at all, and only those are decoded.
        likely = [(id, _message(body)) for id, body in zip(ids, bodies, strict=True) if body and sign in body]
        found += [id for id, message in likely if message is not None and message.message_id == wanted]
    return found


def _message(body: bytes | None) -> Message[Any] | None:
    """A message as it lies there: arguments that are encrypted stay so, since nobody here shows them."""
    as_json = JSONEncoder().decode
    decoders: tuple[Callable[[bytes], Message[Any]], ...] = (lambda raw: Message(**as_json(raw)), Message.decode)
    for decode in decoders:  # the second for whoever has an encoder of their own
        try:
            return decode(body or b"")
        except (DecodeError, FleetError, TypeError, KeyError):
            continue
    return None


def _raw(id: str) -> bytes:
    return id.encode(errors="surrogateescape")
