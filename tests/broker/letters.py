"""Dead letters written straight into Redis."""

from __future__ import annotations

import time

from dramatiq import Message

from fleet.broker import FleetBroker, keys


def fill(broker: FleetBroker, count: int, queue: str = "work", died: float | None = None) -> None:
    """Letters as a stock worker leaves them: no details beside them."""
    at = (died or time.time()) * 1000
    scores, bodies = {}, {}
    for number in range(count):
        options = {"retries": 2, "traceback": "Traceback\nValueError: stock"}
        bodies[f"{queue}-{number:06}"] = Message(queue, "fail", (number,), {}, options).encode()
        scores[f"{queue}-{number:06}"] = at + number
    broker.client.zadd(keys.dead(broker.namespace, queue), scores)  # type: ignore[arg-type]
    broker.client.hset(keys.dead_bodies(broker.namespace, queue), mapping=bodies)  # type: ignore[arg-type]


def spoil(broker: FleetBroker, id: bytes) -> None:
    broker.client.zadd(keys.dead(broker.namespace, "work"), {id: time.time() * 1000})
    broker.client.hset(keys.dead_bodies(broker.namespace, "work"), id, b"\xff{")  # type: ignore[arg-type]
