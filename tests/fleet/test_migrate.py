"""Migrating twice, or by two at once, is migrating once; every branch reaches its head. Nobody waits for it long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from structlog.testing import capture_logs

from fleet.errors import MigrationBlocked
from fleet.storage.engine import psycopg_url
from fleet.storage.migrate import _TRIED_FOR, _config, migrate, revisions
from tests.fleet.conftest import MINIMAL, Fleet, WriteApp
from tests.waiting import wait_until

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


@contextmanager
def _migrating(engine: Engine, root: Path, at_once: int = 1) -> Iterator[list[object]]:
    """So many migrations beside the block, and what each came to: the heads, or what it raised."""
    found: list[object] = []

    def one() -> None:
        try:
            found.append(migrate(engine, root))
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=one) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    yield found
    for thread in threads:
        thread.join(60)


def test_two_at_once_both_succeed_and_leave_no_lock(engine: Engine) -> None:
    with _migrating(engine, ROOT, at_once=2) as found:
        pass
    assert found[0] == found[1], found
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")) == 0


def _stand_at(engine: Engine, *wanted: str) -> None:
    with engine.connect() as connection:
        config = _config(ROOT)
        config.attributes["connection"] = connection
        for revision in wanted:
            command.upgrade(config, revision)
            connection.commit()


@contextmanager
def _open(engine: Engine, statement: str) -> Iterator[Connection]:
    """A transaction that has done so much and stays open for as long as the block."""
    with engine.connect() as connection:
        connection.execute(text(statement))
        yield connection
        connection.rollback()


def _sees(engine: Engine, query: str) -> Callable[[], bool]:
    """Whether the query counts anything, asked of the sessions beside its own."""

    def look() -> bool:
        with engine.connect() as connection:
            return bool(connection.scalar(text(f"SELECT count(*) FROM {query}")))

    return look


_WAITS = "pg_locks WHERE relation = 'transactions'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted"


def test_who_reads_a_table_waits_seconds_for_a_migration_that_waits_for_a_long_reader(engine: Engine) -> None:
    _stand_at(engine, "fleet@head", "books_0008")
    with capture_logs() as logs, _open(engine, "SELECT count(*) FROM transactions") as reader:
        pid = reader.scalar(text("SELECT pg_backend_pid()"))
        with _migrating(engine, ROOT) as found:
            wait_until(_sees(engine, _WAITS))
            with engine.begin() as connection:
                connection.execute(text("SET LOCAL statement_timeout = '5s'"))
                assert connection.scalar(text("SELECT count(*) FROM transactions")) == 0
            assert not found
            reader.rollback()
    assert found == [revisions(ROOT)[0]]
    (waited,) = [line for line in logs if line["event"] == "migration_waits"]
    assert (waited["waits_for"], waited["tries"]) == ("transactions", 1)
    assert f"pid {pid} " in waited["held_by"]


def test_a_migration_that_gets_no_lock_in_time_says_for_which_table_and_keeps_the_revisions_before(
    engine: Engine,
) -> None:
    _stand_at(engine, "fleet@head", "books_0007")
    with _open(engine, "SELECT count(*) FROM transactions") as reader:
        pid = reader.scalar(text("SELECT pg_backend_pid()"))
        with pytest.raises(MigrationBlocked) as raised:
            migrate(engine, ROOT, tried_for=timedelta(seconds=5))
        with engine.begin() as connection:
            query = str(raised.value).rpartition("Who holds it: ")[2]
            assert pid in connection.scalars(text(query)).all()
            stands = connection.scalars(text("SELECT version_num FROM fleet_migrations")).all()
            assert connection.scalar(text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")) == 0
    assert "ALTER TABLE transactions ADD COLUMN sorting_delivery" in str(raised.value)
    assert f"pid {pid} " in str(raised.value)
    assert "books_0008" in stands  # books_0009 is a transaction of its own, of which nothing is left
    assert migrate(engine, ROOT) == revisions(ROOT)[0]


def test_the_job_of_kubernetes_has_ten_minutes_for_migrations_beside_those_that_a_lock_is_tried_for() -> None:
    job = yaml.safe_load((ROOT / "config/deploy/kubernetes/base/migrate.yaml").read_text())
    assert timedelta(seconds=job["spec"]["activeDeadlineSeconds"]) >= _TRIED_FOR + timedelta(minutes=10)


_INDEXES = """
from alembic import op
revision, down_revision, branch_labels, depends_on = "ledger_0001", None, ("ledger",), None
def upgrade():
    with op.get_context().autocommit_block():
        op.drop_index("ix_ledger", "ledger", if_exists=True, postgresql_concurrently=True)
        op.create_index("ix_ledger", "ledger", ["id"], postgresql_concurrently=True)
def downgrade():
    op.drop_index("ix_ledger", "ledger")
"""
_BUILDS = "pg_stat_activity WHERE query LIKE 'CREATE INDEX CONC%' AND wait_event_type = 'Lock'"


@pytest.mark.parametrize("at_once", [1, 2])
def test_an_index_that_is_built_concurrently_waits_as_long_as_it_must_also_beside_a_second_migration(
    engine: Engine, tmp_path: Path, at_once: int
) -> None:
    (tmp_path / "ledger/migrations/versions").mkdir(parents=True)
    (tmp_path / "ledger/migrations/versions/0001_ledger.py").write_text(_INDEXES)
    _stand_at(engine, "fleet@head")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE ledger (id bigint)"))
    with _open(engine, "INSERT INTO ledger VALUES (1)") as writer, _migrating(engine, tmp_path, at_once) as found:
        wait_until(_sees(engine, f"{_BUILDS} AND now() - query_start > '4s'"))  # longer than a lock is waited for
        assert not found
        writer.rollback()
    assert found == [revisions(tmp_path)[0]] * at_once
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT indisvalid FROM pg_index WHERE indexrelid = 'ix_ledger'::regclass"))


_CUSTOMERS = """
from alembic import op
revision, down_revision, branch_labels, depends_on = "0001", None, None, None
def upgrade():
    op.execute("CREATE TABLE customers (id bigint)")
"""


def _alembic_of_its_own(root: Path) -> None:
    """As a service has that migrates itself, whose tables are there by now."""
    (root / "app/migrations/versions").mkdir(parents=True)
    (root / "app/migrations/env.py").write_text("raise SystemExit('somebody else ran it')")
    (root / "app/migrations/versions/0001_customers.py").write_text(_CUSTOMERS)


def test_an_alembic_environment_of_the_applications_own_is_neither_run_nor_marked(
    engine: Engine, tmp_path: Path
) -> None:
    _alembic_of_its_own(tmp_path)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE customers AS SELECT 1 AS id"))
    (head,) = migrate(engine, tmp_path)
    assert head.startswith("fleet_") and revisions(tmp_path)[0] == (head,)
    with engine.connect() as connection:
        assert connection.scalars(text("SELECT version_num FROM fleet_migrations")).all() == [head]
        assert connection.scalar(text("SELECT count(*) FROM customers")) == 1


def test_the_command_says_which_folder_it_left_alone(
    engine: Engine, database_url: str, fleet: Fleet, write_app: WriteApp
) -> None:
    root = write_app()
    _alembic_of_its_own(root)
    said = fleet(root, "migrate", FLEET_DATABASE_URL=database_url).stdout.splitlines()
    assert said[0] == "app/migrations has an env.py: it is an Alembic environment of its own, and left alone"
    assert said[1].startswith("The database stands at fleet_") and len(said) == 2


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
