"""The jobs that are measured, and a broker of either kind for them: each with Dramatiq's default middleware.

A broker of ours that is `whole` has the middleware that every worker of `fleet work` has instead, and a lane's budget,
so that a watchdog is armed for each job. Sentry, which has no address here, reports nothing.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import redis
from dramatiq import Actor
from dramatiq.broker import Broker
from dramatiq.brokers.redis import RedisBroker

from fleet.actor import FleetActor
from fleet.broker import FleetBroker
from fleet.declarations import Budget, Lane, Retry

QUEUE = "bench"
latencies: list[float] = []
"""Milliseconds from `send` to the start of each `stamp` in this process."""
_counter = itertools.count()
_LANE = Lane(
    "bench",
    (QUEUE,),
    waits_for="nothing",
    processes=2,
    threads=8,
    budget=Budget(timedelta(minutes=1), timedelta(minutes=2), because="nothing that is measured takes so long"),
    retry=Retry(attempts=3, first=timedelta(seconds=1), longest=timedelta(minutes=1)),
)


def broker_of(
    kind: str, url: str, namespace: str, *, connections: int = 0, whole: bool = False, **options: Any
) -> Broker:
    """A `FleetBroker` for "ours", Dramatiq's `RedisBroker` for "stock"; `connections` is stock's most, if not 0."""
    if whole:
        from middleware import default_order  # the processes of stock and huey hold nothing of it

        broker = FleetBroker(url=url, namespace=namespace, middleware=default_order(), **options)
        broker.lanes = MappingProxyType({QUEUE: _LANE})
        return broker
    if kind == "ours":
        return FleetBroker(url=url, namespace=namespace, **options)
    if connections:
        options["client"] = redis.Redis.from_url(url, max_connections=connections)
    else:
        options["url"] = url
    return RedisBroker(namespace=namespace, **options)  # type: ignore[no-untyped-call]


def declare(broker: Broker, name: str, queue: str = QUEUE) -> Actor[Any, Any]:
    """The actor `noop`, `nap` or `stamp` of this broker."""
    kind: type[Actor[Any, Any]] = FleetActor if isinstance(broker, FleetBroker) else Actor
    actor = name if queue == QUEUE else f"{name}_{queue}"
    made = kind(BODIES[name], broker=broker, actor_name=actor, queue_name=queue, priority=0, options={})
    if isinstance(made, FleetActor):  # what `queue.actor` says of one that was given nothing of its own
        made.budget = made.retry = made.on_lost = None
        made.safe_args = ()
    return made


def done() -> int:
    """How many `noop` and `nap` were done in this process; called once, at its end."""
    return next(_counter)


def _noop(_number: int = 0) -> None:
    next(_counter)  # the one count of many threads that takes no lock


def _nap(seconds: float) -> None:
    time.sleep(seconds)
    next(_counter)


def _stamp(sent: int) -> None:
    # CLOCK_MONOTONIC is the machine's, not the process's.
    latencies.append((time.monotonic_ns() - sent) / 1e6)


BODIES: dict[str, Callable[..., Any]] = {"noop": _noop, "nap": _nap, "stamp": _stamp}
