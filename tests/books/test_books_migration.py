"""The hand-written migration makes the tables that the models describe."""

from __future__ import annotations

from collections.abc import Callable

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, select, text

from books.models import Base, Category
from fleet.storage import database, session
from fleet.storage.engine import psycopg_url
from fleet.storage.migrate import _config
from tests.conftest import ROOT


def test_the_migrated_database_is_what_the_models_say(migrated: object) -> None:
    ours = set(Base.metadata.tables)

    def is_ours(thing: object, name: str | None, kind: str, reflected: bool, other: object) -> bool:
        return kind != "table" or name in ours

    with database().connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": is_ours})
        assert compare_metadata(context, Base.metadata) == []


def test_every_customer_starts_with_a_dozen_categories_or_more(migrated: object) -> None:
    with session() as s:
        names = s.scalars(select(Category.name)).all()
    assert len(names) >= 12
    assert "Other" in names


_BATCHES = """
    INSERT INTO upload_batches (id, customer)
    VALUES (1, 'waits'), (2, 'is read'), (3, 'done'), (4, 'in part'), (5, 'empty');
    INSERT INTO attachments (customer, path, batch_id, status) VALUES
        ('c', 'a', 1, 'queued'), ('c', 'b', 1, 'queued'),
        ('c', 'a', 2, 'read'), ('c', 'b', 2, 'queued'),
        ('c', 'a', 3, 'read'),
        ('c', 'a', 4, 'read'), ('c', 'b', 4, 'unreadable')
"""


def test_what_sorting_remembers_is_added_empty_and_its_rows_are_found_by_account_before_and_after(
    database_url: str,
) -> None:
    index = text("SELECT indexdef FROM pg_indexes WHERE indexname = 'ix_transactions_to_sort'")
    with create_engine(psycopg_url(database_url)).connect() as connection:
        config = _config(ROOT)
        config.attributes["connection"] = connection
        for step, revision, columns in (
            (command.upgrade, "books_0009", "(account_id, unmatched_by, id)"),
            (command.downgrade, "books_0008", "(account_id, id)"),
            (command.upgrade, "books_0009", "(account_id, unmatched_by, id)"),
        ):
            step(config, revision)
            connection.commit()
            assert columns in (connection.scalar(index) or "")
        nullable = """
            SELECT is_nullable FROM information_schema.columns WHERE column_name IN ('sorting_delivery', 'unmatched_by')
        """
        assert connection.scalars(text(nullable)).all() == ["YES", "YES"]


def test_a_batch_from_before_gets_the_state_that_its_files_say_and_loses_it_on_the_way_back(database_url: str) -> None:
    def alembic(step: Callable[[Config, str], None], revision: str) -> None:
        config = _config(ROOT)
        config.attributes["connection"] = connection
        step(config, revision)
        connection.commit()

    with create_engine(psycopg_url(database_url)).connect() as connection:
        alembic(command.upgrade, "books_0004")  # the other tests of this module share the database
        alembic(command.downgrade, "books_0003")
        connection.execute(text(_BATCHES))
        connection.commit()
        alembic(command.upgrade, "books_0004")
        read = "SELECT customer, status, files_done, files_total, outcome, finished_at IS NULL FROM upload_batches"
        assert [tuple(row) for row in connection.execute(text(f"{read} ORDER BY id"))] == [
            ("waits", "queued", 0, 2, None, True),
            ("is read", "reading", 1, 2, None, True),
            ("done", "done", 1, 1, "1 of 1 files read", False),
            ("in part", "done_with_errors", 2, 2, "1 of 2 files read", False),
            ("empty", "done", 0, 0, "0 of 0 files read", False),
        ]
        alembic(command.downgrade, "books_0003")
        columns = connection.execute(text("SELECT * FROM upload_batches")).keys()
        assert list(columns) == ["id", "customer", "uploaded_at"]
        alembic(command.upgrade, "books_0004")
