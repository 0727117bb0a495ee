"""Migrating twice, or by two at once, is migrating once; every branch reaches its head."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, inspect, text

from fleet.storage.engine import psycopg_url
from fleet.storage.migrate import migrate
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
    assert "slot_runs" in inspect(engine).get_table_names()


def test_an_application_without_migrations_gets_the_engines_alone(engine: Engine) -> None:
    (head,) = migrate(engine, MINIMAL)
    assert head.startswith("fleet_")
    assert sorted(inspect(engine).get_table_names()) == ["fleet_migrations", "slot_runs"]


def test_a_second_time_finds_nothing_to_do(engine: Engine) -> None:
    first = migrate(engine, ROOT)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO slot_runs VALUES ('e', now(), 'm', 1, now(), now())"))
    assert migrate(engine, ROOT) == first
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM slot_runs")) == 1


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
