"""Replicas of the beat inside the test's process: real locks and scripts, each replica with a client of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from beat.leader import Leader
from fleet import Budget, queue
from fleet import app as application
from fleet.broker import FleetBroker
from fleet.broker.connection import client_from
from fleet.clock import clock
from fleet.settings import Settings
from middleware import default_order
from tests.beat.beaten import START, Beaten, StandingNight
from tests.waiting import wait_until

TTL = timedelta(seconds=2)
RENEWAL = timedelta(milliseconds=200)


@pytest.fixture
def replica(redis_url: str, namespace: str) -> Iterator[Callable[..., Leader]]:
    """Start a replica's leader thread; every one is stopped afterwards."""
    started: list[Leader] = []

    def start(
        client: redis.Redis | None = None, ttl: timedelta = TTL, renewal: timedelta = RENEWAL, **more: Any
    ) -> Leader:
        client = client or client_from(redis_url, answers_within=renewal)
        leader = Leader(client, namespace, ttl=ttl, renewal=renewal, **more)
        leader.start()
        started.append(leader)
        return leader

    yield start
    for leader in started:
        leader.stop()


@pytest.fixture
def broker(redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> FleetBroker:
    """A broker of the test's own with one actor, `job`, on the queue `work`."""
    made = FleetBroker(lambda: Settings(redis_url=redis_url, namespace=namespace), middleware=default_order())
    monkeypatch.setattr(application, "process_broker", lambda: made)
    budget = Budget(timedelta(seconds=1), timedelta(seconds=2), because="nothing is run by the beat")

    @queue("work").actor(budget=budget)
    def job() -> None: ...

    return made


@pytest.fixture
def real_time_afterwards() -> Iterator[None]:
    """Ends a night that the test played."""
    yield
    clock.set_night(None)


@pytest.fixture
def night() -> Iterator[StandingNight]:
    """Night time stands still at START."""
    standing = StandingNight()
    standing.move_to(START)
    yield standing
    clock.set_night(None)


@pytest.fixture
def leader(replica: Callable[..., Leader]) -> Leader:
    """A leader in its first term."""
    started = replica(ttl=timedelta(seconds=60))
    wait_until(lambda: started.epoch)
    return started


@pytest.fixture
def beaten(redis_client: redis.Redis, namespace: str) -> Beaten:
    return Beaten(redis_client, namespace)
