"""The hand-written migration makes the tables that the models describe."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import select

from books.models import Base, Category
from fleet.storage import database, session


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
