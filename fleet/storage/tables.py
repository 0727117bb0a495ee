"""The engine's own tables."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import DateTime, MetaData, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class EngineBase(DeclarativeBase):
    """The engine's tables; an application's have a base of their own."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class SlotRun(EngineBase):
    """A message of a slot that a worker took up: one row a (entry, slot, message), so that two messages would show.

    `started_at`, `ended_at` are real; `slot` and `started_night` are night time. `outcome`: done, failed, retried,
    expired, deadline, skipped; None while it runs or after its process died.
    """

    __tablename__ = "slot_runs"

    entry: Mapped[str] = mapped_column(primary_key=True)
    slot: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)
    message_id: Mapped[str] = mapped_column(primary_key=True)
    starts: Mapped[int] = mapped_column(default=1, server_default="1")
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    started_night: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    outcome: Mapped[str | None]
