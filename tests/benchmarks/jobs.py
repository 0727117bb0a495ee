"""The actors that are measured, and a broker of either kind for them: each with Dramatiq's default middleware."""

from __future__ import annotations

import time
from typing import Any

from dramatiq import Actor
from dramatiq.broker import Broker
from dramatiq.brokers.redis import RedisBroker

from fleet.actor import FleetActor
from fleet.broker import FleetBroker

QUEUE = "bench"
latencies: list[float] = []
"""Milliseconds from `send` to the start of each `stamp` in this process."""


def broker_of(kind: str, url: str, namespace: str, **options: Any) -> Broker:
    """A `FleetBroker` for "ours", Dramatiq's `RedisBroker` for "stock"."""
    if kind == "ours":
        return FleetBroker(url=url, namespace=namespace, **options)
    return RedisBroker(url=url, namespace=namespace, **options)


def declare(broker: Broker, name: str, queue: str = QUEUE) -> Actor[Any, Any]:
    """The actor `noop`, `nap` or `stamp` of this broker."""
    bodies = {"noop": _noop, "nap": _nap, "stamp": _stamp}
    kind = FleetActor if isinstance(broker, FleetBroker) else Actor
    options = {"actor_name": name if queue == QUEUE else f"{name}_{queue}", "queue_name": queue, "priority": 0}
    return kind(bodies[name], broker=broker, options={}, **options)


def _noop(_number: int = 0) -> None:
    return None


def _nap(seconds: float) -> None:
    time.sleep(seconds)


def _stamp(sent: int) -> None:
    # CLOCK_MONOTONIC is the machine's, not the process's.
    latencies.append((time.monotonic_ns() - sent) / 1e6)
