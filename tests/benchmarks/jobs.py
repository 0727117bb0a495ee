"""The actors that are measured, and a broker of either kind for them: each with Dramatiq's default middleware."""

from __future__ import annotations

import time
from collections.abc import Callable
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
    return RedisBroker(url=url, namespace=namespace, **options)  # type: ignore[no-untyped-call]


def declare(broker: Broker, name: str, queue: str = QUEUE) -> Actor[Any, Any]:
    """The actor `noop`, `nap` or `stamp` of this broker."""
    kind: type[Actor[Any, Any]] = FleetActor if isinstance(broker, FleetBroker) else Actor
    actor = name if queue == QUEUE else f"{name}_{queue}"
    return kind(_BODIES[name], broker=broker, actor_name=actor, queue_name=queue, priority=0, options={})


def _noop(_number: int = 0) -> None:
    return None


def _nap(seconds: float) -> None:
    time.sleep(seconds)


def _stamp(sent: int) -> None:
    # CLOCK_MONOTONIC is the machine's, not the process's.
    latencies.append((time.monotonic_ns() - sent) / 1e6)


_BODIES: dict[str, Callable[..., Any]] = {"noop": _noop, "nap": _nap, "stamp": _stamp}
