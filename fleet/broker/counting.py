"""Counts the messages of a queue, or of one actor in it, wherever they are there; dead letters are not among them.

Reads every body of the queue, a thousand a call, so it is for a person's question and not for a job's. Not guaranteed:
that a message which is sent meanwhile is counted.
"""

from __future__ import annotations

import json
from typing import Any

from fleet.broker import FleetBroker, keys

_A_CALL = 1_000


def messages_of(broker: FleetBroker, queue: str, actor: str | None = None) -> int:
    """How many messages of an actor, or of any, wait, are delayed (a stock producer's too) or run."""
    names = (queue, keys.delayed(queue))
    bodies = (
        body
        for name in names
        for _, body in broker.client.hscan_iter(keys.bodies(broker.namespace, name), count=_A_CALL)
    )
    return sum(actor is None or _actor(body) == actor for body in bodies)


def _actor(body: Any) -> object:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found.get("actor_name") if isinstance(found, dict) else None
