"""A real worker on a broker of the test's own, with the fleet's middleware in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import redis
from dramatiq import Message
from sqlalchemy import delete

from fleet import Budget, Entry, Lane, Retry
from fleet import app as application
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.settings import Settings
from fleet.storage import engine as storage
from fleet.storage import session
from fleet.storage.tables import Slot
from fleet.workers.worker import FleetWorker
from middleware import default_order, slot_refusal
from tests.middleware.ingest import Ingest
from tests.middleware.slot_rows import configure, forget_database
from tests.waiting import wait_until

QUEUE = "work"
LANE = Lane(
    "lane",
    [QUEUE],  # type: ignore[arg-type]  # a list is what applications write
    waits_for="a test",
    processes=1,
    threads=2,
    budget=Budget(timedelta(seconds=20), timedelta(seconds=40), because="no job of a test comes near it"),
    retry=Retry(attempts=3, first=timedelta(milliseconds=20), longest=timedelta(milliseconds=40)),
)
NIGHTLY = Entry("nightly", cron="0 1 * * *", expires=timedelta(hours=2), because="the entry of these tests' slots")


class House:
    """The broker, its one lane and entry, and what is left of its messages."""

    def __init__(self, broker: FleetBroker, client: redis.Redis) -> None:
        self.broker, self._client = broker, client
        self._worker: FleetWorker | None = None
        broker.lanes, broker.entries = {QUEUE: LANE}, {NIGHTLY.name: NIGHTLY}

    def lane(self, **values: Any) -> None:
        """Give the lane another budget or retry shape."""
        self.broker.lanes = {QUEUE: replace(LANE, **values)}

    def work(self) -> None:
        """Start two threads on every queue that has actors by now."""
        self._worker = FleetWorker(self.broker, worker_timeout=50, worker_threads=2)
        self._worker.start()

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def until_idle(self, seconds: float = 30) -> None:
        """Wait until no message waits, runs, or is delayed."""
        ns = self.broker.namespace
        held = [keys.bodies(ns, name) for queue in self.broker.queues for name in (queue, keys.delayed(queue))]
        wait_until(lambda: not any(self._client.hlen(key) for key in held), seconds)

    def dead(self) -> list[Message[Any]]:
        """The dead letters."""
        bodies = self._client.hvals(keys.dead_bodies(self.broker.namespace, QUEUE))
        return [Message.decode(body) for body in bodies]


@pytest.fixture
def house(
    redis_url: str, redis_client: redis.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[House]:
    """Without a database and without Sentry; a test that wants either sets `application.settings` itself."""
    settings = Settings(redis_url=redis_url, namespace=namespace, database_url=None)
    broker = FleetBroker(lambda: settings, middleware=default_order())
    monkeypatch.setattr(application, "process_broker", lambda: broker)
    monkeypatch.setattr(application, "settings", lambda: settings)
    made = House(broker, redis_client)
    yield made
    made.stop()
    clock.set_night(None)


@pytest.fixture
def ingest(house: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ingest]:
    """The house configured to report to a server of the test's own."""
    import sentry_sdk

    from fleet import sentry

    server = Ingest()
    sentry._state.forget()
    configured = application.settings()
    settings = Settings(
        redis_url=configured.redis_url,
        namespace=configured.namespace,
        database_url=None,
        sentry_dsn=server.dsn,
        sentry_environment="a-test",
    )
    monkeypatch.setattr(application, "settings", lambda: settings)
    yield server
    house.stop()
    sentry_sdk.get_client().close(timeout=1)
    sentry_sdk.get_global_scope().clear()
    sentry_sdk.get_global_scope().set_client(None)
    sentry._state.forget()
    server.close()


@pytest.fixture
def recorded(house: House, migrated_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """The house with a migrated database; who waits for a slot asks five times a second."""
    monkeypatch.setattr(slot_refusal, "ASKS_EVERY", timedelta(milliseconds=200))
    configure(house, monkeypatch, migrated_url)
    yield house
    house.stop()
    configure(house, monkeypatch, migrated_url)
    with session() as s:
        s.execute(delete(Slot))
    storage.database().dispose()
    forget_database()


@pytest.fixture
def neighbour(recorded: House, redis_client: redis.Redis) -> Iterator[House]:
    """Another fleet on the same servers; `configure` makes it this process's."""
    beside = f"{recorded.broker.namespace}:beside"  # so that the root's `namespace` removes its keys
    settings = application.settings().model_copy(update={"namespace": beside})
    made = House(FleetBroker(lambda: settings, middleware=default_order()), redis_client)
    yield made
    made.stop()


Counted = Callable[..., float]


@pytest.fixture
def counted() -> Counted:
    """How much a metric has grown since the fixture was made."""
    from prometheus_client import REGISTRY

    def value(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(name, labels) or 0.0

    def key(name: str, labels: dict[str, str]) -> tuple[str, tuple[tuple[str, str], ...]]:
        return name, tuple(sorted(labels.items()))

    before = {
        key(sample.name, sample.labels): sample.value for metric in REGISTRY.collect() for sample in metric.samples
    }
    return lambda name, **labels: value(name, **labels) - before.get(key(name, labels), 0.0)
