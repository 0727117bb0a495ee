"""The base of the bookkeeping's records, apart from the engine's: two Alembic branches, one database.

Business instants (`booked`, `sent_at`, `last_synced_at`, …) are night time; leases and `…_at` columns that the database
fills are real time. In production both are the same.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import BigInteger, DateTime, Index, MetaData, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase

NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Every record of the bookkeeping. `int` columns are BIGINT: amounts are cents, and ids never run out."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        int: BigInteger,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
    }


def shown_as_runs(table: str, changed: str) -> tuple[Index, ...]:
    """The indexes by which the view `fleet_runs` finds a table's rows: by when they changed, and by id as text."""
    return Index(f"ix_{table}_changed", text(f"({changed})")), Index(f"ix_{table}_shown", text("(id::text)"))
