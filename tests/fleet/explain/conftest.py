"""An application of one lane and one actor in a real Redis, to be explained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from dramatiq import Message

from fleet import Budget, Elastic, Entry, Lane, Retry, queue
from fleet import app as application
from fleet.app import App
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.explain import MOST_LINES, explain
from fleet.settings import Settings
from fleet.workers.worker import FleetWorker
from middleware import default_order

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
START = datetime(2026, 3, 2, 1, 0, tzinfo=UTC)
BUDGET = Budget(2 * MINUTE, 3 * MINUTE, because="no job of a test comes near it")
RETRY = Retry(attempts=3, first=HOUR, longest=HOUR)
LANE = Lane("banks", ["work"], "a bank", processes=2, threads=4, budget=BUDGET, retry=RETRY)  # type: ignore[arg-type]
NIGHTLY = Entry("nightly", cron="10 3 * * *", expires=2 * HOUR, because="banks have closed their day", actor="job")
SWEEP = Entry(
    "sweep",
    cron="0 4 * * *",
    expires=2 * HOUR,
    because="before the morning invoices",
    actor="job",
    elastic=Elastic((time(0, 30), time(6, 15)), time(7), time(4), "books:rows", 100, 4, "the night has room for it"),
)


class House:
    """An application of one lane and one actor, whose body the test gives."""

    def __init__(self, broker: FleetBroker, client: redis.Redis) -> None:
        self.broker, self.client = broker, client
        self.body: Callable[[], object] = lambda: None
        self.job = queue("work").actor(name="job")(lambda: self.body())
        broker.lanes, broker.entries = {"work": LANE}, {one.name: one for one in (NIGHTLY, SWEEP)}
        self.app = App(Path(), broker.actors, (LANE,), (NIGHTLY, SWEEP))  # type: ignore[arg-type]
        self.worker: FleetWorker | None = None

    def send(self, **options: Any) -> Message[Any]:
        return self.broker.enqueue(self.job.message_with_options(**options), delay=options.pop("delay", None))

    def work(self) -> None:
        self.worker = FleetWorker(self.broker, worker_timeout=50, worker_threads=1)
        self.worker.start()

    def told(self, wanted: str) -> list[str]:
        """The lines of the only explanation."""
        [found] = explain(self.app, self.broker, wanted)
        assert 0 < len(found.lines) <= MOST_LINES
        return list(found.lines)

    def said(self, wanted: str) -> str:
        return "\n".join(self.told(wanted))


def redis_id(message: Message[Any]) -> str:
    return str(message.options["redis_message_id"])


@pytest.fixture
def house(
    redis_url: str, redis_client: redis.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[House]:
    settings = Settings(redis_url=redis_url, namespace=namespace, database_url=None)
    broker = FleetBroker(lambda: settings, middleware=default_order())
    monkeypatch.setattr(application, "process_broker", lambda: broker)
    monkeypatch.setattr(application, "settings", lambda: settings)
    made = House(broker, redis_client)
    yield made
    if made.worker is not None:
        made.worker.stop()
    clock.set_night(None)
