"""Pytest fixtures for an application's own tests: real actors on a real Valkey and PostgreSQL, and a night that stands.

In your `conftest.py`:

    pytest_plugins = ["fleet.testing"]

| fixture | scope | gives |
|---|---|---|
| `fleet_root` | session | the application's root; pytest's root folder, unless you define your own |
| `fleet_servers` | session | the URLs of a Valkey and a PostgreSQL: embedded ones, where none are configured |
| `fleet_database` | session | the URL of a fresh database with every migration applied |
| `fleet_app` | function | the application, loaded, on a Redis namespace of the test's own |
| `fleet_jobs` | function | runs what is queued in this very process, through every hook; retries are left |
| `fleet_night` | function | the night's clock: stands at an instant, moves when told to |

An actor may also simply be called: `actor(17)` runs its body, without hooks and without a budget.

Not guaranteed: processes. What a lane does when one dies is the engine's to prove, and it does; jobs here run in
threads of the test. Rows that a test commits stay until the session ends: judge rows of your own. On failure of a job
its traceback is in the error that `run` raises.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from dramatiq import Message
from dramatiq.errors import DecodeError

from fleet import app as application
from fleet import embedded, probe, wire
from fleet.app import App
from fleet.broker import FleetBroker, keys
from fleet.broker import dead as dead_letters
from fleet.broker.dead import DeadLetter
from fleet.clock import clock
from fleet.errors import FleetError
from fleet.payloads import as_it_lies
from fleet.settings import Settings
from fleet.workers.other_release import misfit
from fleet.workers.worker import FleetWorker

_LOOK_SECONDS = 0.01


class JobsFailed(FleetError):
    """Raised when jobs ended as dead letters, could not be begun, or did not end in time; says what they raised."""


def forget_settings() -> None:
    """Drop everything this process cached of its environment, its connections included."""
    from fleet.outbox import forget_outage
    from fleet.storage import engine as storage
    from fleet.storage import reference

    application.settings.cache_clear()
    own = getattr(sys.modules.get("config.settings"), "settings", None)
    if (forget := getattr(own, "cache_clear", None)) is not None:  # an application need not keep them
        forget()
    reference.forget()
    storage.database.cache_clear()
    storage._sessions.cache_clear()
    broker = application.process_broker()
    for name in ("client", "scripts", "own_scripts", "namespace"):
        broker.__dict__.pop(name, None)
    forget_outage(broker)


class Jobs:
    """Runs an application's queued messages in this process."""

    def __init__(self, app: App, broker: FleetBroker) -> None:
        self._app, self._broker = app, broker
        self._queues = [queue for lane in app.lanes for queue in lane.queues]

    def run(self, *, within: timedelta = timedelta(seconds=30), threads: int = 4, may_fail: bool = False) -> int:
        """Run what is queued, what that sends, and what was sent with a delay; returns how many messages ended.

        Left are retries, unless they come due while something else runs, and what comes due behind `within`, which is
        real time. Raises `JobsFailed` for messages that no actor here takes, for dead letters that were made, unless
        they may be, and when something still runs then.
        """
        before = {letter.id for letter in self.dead()}
        worker = FleetWorker(self._broker, queues=set(self._queues), worker_threads=threads, worker_timeout=50)
        worker.start()
        try:
            ended = self._until_nothing_is_left(clock.real_now() + within)
        finally:
            worker.stop(timeout=2_000)
        made = [letter for letter in self.dead() if letter.id not in before and not may_fail]
        if failed := [*map(_told, made), *self._misfits()]:
            raise JobsFailed("\n\n".join(failed))
        if not ended:
            raise JobsFailed(
                f"After {within} there is still: {self._left()}. Does a job wait, or send itself for ever?"
            )
        return sum(worker.ends[kind] for kind in ("done", "drop", "dead"))

    def dead(self) -> list[DeadLetter]:
        """The application's dead letters."""
        return list(dead_letters.letters(self._broker, self._queues))

    def waiting(self) -> int:
        """How many messages have not ended, delayed ones included."""
        return sum(reading.left for reading in self._readings())

    def _readings(self) -> Iterable[probe.QueueReading]:
        return probe.read(self._broker, self._queues)

    def _until_nothing_is_left(self, ends: datetime) -> bool:
        while any(one.ready or one.in_flight or self._is_awaited(one, ends) for one in self._readings()):
            if clock.real_now() > ends:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _is_awaited(self, reading: probe.QueueReading, ends: datetime) -> bool:
        """Whether more was delayed than what is left to its retry, to another release, or to a time behind the end."""
        if not reading.delayed:
            return False
        client, ns, until = self._broker.client, self._broker.namespace, wire.to_ms(ends)
        due = keys.due(ns, reading.queue)
        ids: Any = client.zrangebyscore(due, 0, until)
        bodies: Any = client.hmget(keys.bodies(ns, reading.queue), ids) if ids else ()
        left = sum("retries" in one.options or wire.LEFT in one.options for one in _readable(bodies))
        behind: Any = client.zcount(due, f"({until}", "+inf")
        return bool(reading.delayed > left + behind)

    def _misfits(self) -> Iterator[str]:
        """Of each message that a lane would leave to another release, what does not fit; here there is no other."""
        for queue in self._queues:
            bodies: Any = self._broker.client.hvals(keys.bodies(self._broker.namespace, queue))
            for message in _readable(bodies):
                if wire.LEFT in message.options:
                    yield f"{message.actor_name} ({message.message_id}) did not run: {self._misfit(message)}."

    def _misfit(self, message: Message[Any]) -> str:
        if message.actor_name not in self._broker.actors:
            return "no actor of this name is declared"
        actor = self._broker.get_actor(message.actor_name)
        return (
            f"{message.actor_name}{inspect.signature(actor.fn)} does not take its arguments: {misfit(actor, message)}"
        )

    def _left(self) -> str:
        return ", ".join(
            f"{reading.ready} waiting and {reading.in_flight} running in {reading.queue}"
            for reading in self._readings()
            if reading.left
        )


def _readable(bodies: Iterable[bytes | None]) -> Iterator[Message[Any]]:
    for body in bodies:
        with suppress(DecodeError, TypeError, KeyError):  # it becomes a dead letter, which is told
            yield as_it_lies(body or b"")


def _told(letter: DeadLetter) -> str:
    told = letter.details.get("traceback") or letter.exception
    return f"{letter.actor} ({letter.id}) is a dead letter, {letter.reason}:\n{told}"


class NightClock:
    """The night's clock of a test. Slots, `expires` and retry delays go by it; budgets and leases are real time."""

    def stands_at(self, instant: datetime) -> None:
        """Let night time stand. Raises `ValueError` for an instant without a UTC offset."""
        if instant.tzinfo is None:
            raise ValueError(f"{instant.isoformat()} has no UTC offset; say which zone, for example with ZoneInfo")
        clock.freeze(instant)

    def moves_by(self, duration: timedelta) -> datetime:
        """Move a clock that stands (or let it stand, so much from now); returns where it stands."""
        clock.freeze(clock.now() + duration)
        return clock.now()

    def goes_on(self) -> None:
        """Let night time be real time again."""
        clock.freeze(None)


@pytest.fixture(scope="session")
def fleet_root(request: pytest.FixtureRequest) -> Path:
    """The application's root; define a fixture of this name where it is another folder."""
    return Path(request.config.rootpath)


@pytest.fixture(scope="session")
def fleet_servers() -> Iterator[embedded.Urls]:
    """A Valkey or Redis and a PostgreSQL, started for the session where none is configured."""
    configured = Settings.read()
    wanted = embedded.Wanted(valkey=configured.redis_url is None, postgres=configured.database_url is None)
    with (
        tempfile.TemporaryDirectory(prefix="fleet-tests-") as folder,
        embedded.servers(Path(folder), wanted) as started,
    ):
        yield embedded.Urls(
            redis_url=configured.redis_url or started.redis_url,
            database_url=configured.database_url or started.database_url,
        )


@pytest.fixture(scope="session")
def fleet_database(fleet_servers: embedded.Urls, fleet_root: Path) -> Iterator[str]:
    """The URL of a database of the session's own, with every migration of the engine and the application applied."""
    from sqlalchemy import create_engine, text

    from fleet.storage.engine import psycopg_url, unpooled
    from fleet.storage.migrate import migrate

    url, name = psycopg_url(fleet_servers.database_url), f"test_{uuid.uuid4().hex[:12]}"
    admin = create_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f'CREATE DATABASE "{name}"'))
    made = url.set(database=name).render_as_string(hide_password=False)
    migrate(unpooled(made), fleet_root)
    yield made
    with admin.connect() as connection:
        connection.execute(text(f'DROP DATABASE "{name}" WITH (FORCE)'))
    admin.dispose()


@pytest.fixture
def fleet_app(fleet_servers: embedded.Urls, fleet_database: str, fleet_root: Path) -> Iterator[App]:
    """The application, loaded, and this process configured for a namespace of the test's own."""
    given = {
        "FLEET_REDIS_URL": fleet_servers.redis_url,
        "FLEET_DATABASE_URL": fleet_database,
        "FLEET_NAMESPACE": f"test-{uuid.uuid4().hex[:12]}",
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    app = application.load(fleet_root)
    forget_settings()
    yield app
    _remove(given["FLEET_REDIS_URL"], given["FLEET_NAMESPACE"])
    for name, value in before.items():
        os.environ.pop(name)
        os.environ.update({} if value is None else {name: value})
    forget_settings()


def _remove(url: str, namespace: str) -> None:
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(f"{namespace}:*", count=1000):
            client.delete(key)


@pytest.fixture
def fleet_jobs(fleet_app: App) -> Jobs:
    """Runs the application's queued messages in this process."""
    return Jobs(fleet_app, application.process_broker())


@pytest.fixture
def fleet_night() -> Iterator[NightClock]:
    """The night's clock; goes on at the end of the test."""
    yield NightClock()
    clock.freeze(None)
