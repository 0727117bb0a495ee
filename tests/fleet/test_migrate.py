"""Migrating twice, or by two at once, is migrating once; every branch reaches its head."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, inspect, text

from fleet.storage.engine import psycopg_url
from fleet.storage.migrate import _config, migrate
from tests.fleet.conftest import MINIMAL

ROOT = Path(__file__).parents[2]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on the module's database, emptied."""
    made = create_engine(psycopg_url(database_url))
    with made.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    yield made
    made.dispose()


def test_the_engine_and_the_application_each_stand_at_a_head_of_their_own(engine: Engine) -> None:
    heads = migrate(engine, ROOT)
    assert len(heads) == 2
    assert any(head.startswith("fleet_") for head in heads)
    assert "slots" in inspect(engine).get_table_names()


def test_an_application_without_migrations_gets_the_engines_alone(engine: Engine) -> None:
    (head,) = migrate(engine, MINIMAL)
    assert head.startswith("fleet_")
    assert sorted(inspect(engine).get_table_names()) == ["fleet_audit", "fleet_migrations", "outbox", "slots"]


def test_a_second_time_finds_nothing_to_do(engine: Engine) -> None:
    first = migrate(engine, ROOT)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO slots VALUES ('e', now(), 'done', 'n', 't', 'm')"))
    assert migrate(engine, ROOT) == first
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM slots")) == 1


def test_two_at_once_both_succeed_and_leave_no_lock(engine: Engine) -> None:
    found: list[object] = []

    def one() -> None:
        try:
            found.append(migrate(engine, ROOT))
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found[0] == found[1], found
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")) == 0


_RUNS = """
    INSERT INTO slot_runs (entry, slot, message_id, starts, started_at, started_night, ended_at, outcome) VALUES
        ('once', '2026-03-02 01:00Z', 'a', 2, '2026-03-02 01:00Z', now(), '2026-03-02 01:01Z', 'done'),
        ('twice', '2026-03-02 01:00Z', 'b', 1, '2026-03-02 01:00Z', now(), '2026-03-02 01:01Z', 'done'),
        ('twice', '2026-03-02 01:00Z', 'c', 3, '2026-03-02 01:05Z', now(), '2026-03-02 01:06Z', 'failed'),
        ('cut off', '2026-03-02 01:00Z', 'd', 1, '2026-03-02 01:00Z', now(), NULL, NULL),
        ('again', '2026-03-02 01:00Z', 'e', 1, '2026-03-02 01:00Z', now(), '2026-03-02 01:01Z', 'retried')
"""


def test_the_record_of_runs_is_carried_over_into_slots_and_back(engine: Engine) -> None:
    def alembic(connection: Any, step: Callable[[Config, str], None], revision: str) -> None:
        config = _config(MINIMAL)
        config.attributes["connection"] = connection
        step(config, revision)
        connection.commit()

    with engine.connect() as connection:
        alembic(connection, command.upgrade, "fleet_0001")
        connection.execute(text(_RUNS))
        connection.commit()
        alembic(connection, command.upgrade, "fleet_0002")
        read = "SELECT entry, nonce, state, fires, starts, lease_until IS NULL, ended_at IS NULL FROM slots ORDER BY 1"
        assert [tuple(row) for row in connection.execute(text(read))] == [
            ("again", "e", "waiting", 1, 1, False, True),
            ("cut off", "d", "running", 1, 1, False, True),
            ("once", "a", "done", 1, 2, True, False),
            ("twice", "c", "failed", 2, 4, True, False),
        ]
        assert connection.scalar(text("SELECT bool_and(lease_until <= now()) FROM slots WHERE ended_at IS NULL"))
        alembic(connection, command.downgrade, "fleet_0001")
        read = "SELECT entry, message_id, outcome, starts FROM slot_runs ORDER BY 1"
        assert [tuple(row) for row in connection.execute(text(read))] == [
            ("again", "e", "retried", 1),
            ("cut off", "d", None, 1),
            ("once", "a", "done", 2),
            ("twice", "c", "failed", 4),
        ]
