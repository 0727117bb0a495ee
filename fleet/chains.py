"""Begins the chains of an elastic entry that are allowed and not there.

A seed's id is `entry#number.generation`. One script takes it only if no message of that chain is there: waiting,
running or delayed. So any number of callers may seed at once: a worker at the entry's slot, the leader's balancer and
its ordinary pass.

Not guaranteed: one body a chain while an entry's actor moves to another queue; the chains of the old one end when their
lane has drained them. On failure: raises what redis-py raises; a seed whose reply was lost may have begun, and is not
begun twice.
"""

from __future__ import annotations

from typing import Any

import redis
from dramatiq import Message

from fleet import wire
from fleet.broker import FleetBroker, keys
from fleet.broker.sealing import id_and_bytes
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.window import window


def seed(broker: FleetBroker, entry: Entry, places: int, client: redis.Redis | None = None) -> int:
    """Begin those of the chains 0…places-1 that are not there, over `client` if given; returns how many began.

    Raises what Dramatiq raises where the entry's actor is not there, and redis-py when Redis does not take it.
    """
    if places <= 0:
        return 0
    ns, queue = broker.namespace, broker.get_actor(entry.actor).queue_name
    numbers = range(places)
    last: Any = (client or broker.client).hmget(keys.chains(ns, entry.name), [str(number) for number in numbers])
    seeds = [_seed(broker, entry, queue, number, known) for number, known in zip(numbers, last, strict=True)]
    args: list[Any] = [keys.wake(ns), queue]
    for number, known, message in zip(numbers, last, seeds, strict=True):
        args += [number, known or "", *id_and_bytes(message)]
    began: list[bytes] = broker.own_scripts.seed(
        keys=[keys.chains(ns, entry.name), keys.queue(ns, queue), keys.bodies(ns, queue), keys.awaited(ns)],
        args=args,
        client=client,
    )
    for number in map(int, began):
        broker.emit_after("enqueue", seeds[number], None)
    return len(began)


def living(broker: FleetBroker, entry: Entry) -> list[int]:
    """The numbers of the chains that are there, in order."""
    ns, queue = broker.namespace, broker.get_actor(entry.actor).queue_name
    last: Any = broker.client.hgetall(keys.chains(ns, entry.name))
    if not last:
        return []
    numbers = sorted(last, key=int)
    there: Any = broker.client.hmget(keys.bodies(ns, queue), [last[number] for number in numbers])
    return [int(number) for number, body in zip(numbers, there, strict=True) if body is not None]


def _seed(broker: FleetBroker, entry: Entry, queue: str, number: int, last: bytes | None) -> Message[Any]:
    generation = _generation(last) + 1
    message_id, now = f"{entry.name}#{number}.{generation}", clock.now()
    options = {
        "redis_message_id": message_id,
        wire.ENTRY: entry.name,
        wire.CHAIN: number,
        wire.GENERATION: generation,
        wire.EXPIRES_AT: wire.to_ms(window(entry, now).closes),
        wire.ASKED_AT: wire.to_ms(now),  # not that of a slot whose message sends it
    }
    sent = wire.to_ms(clock.real_now())
    message: Message[Any] = Message(queue, entry.actor, (), {}, options, message_id, sent)
    broker.emit_before("enqueue", message, None)
    return message


def _generation(seed_id: bytes | None) -> int:
    digits = (seed_id or b"").rpartition(b".")[2]
    return int(digits) if digits.isdigit() else 0
