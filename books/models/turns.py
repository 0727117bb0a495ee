"""Whose turn it is in a backlog that chunks take round-robin by customer."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from books.models.base import Base


class BacklogTurn(Base):
    """The customer of whom the backlog was served last; no row, or one of a customer who is gone, is no fault."""

    __tablename__ = "backlog_turns"

    backlog: Mapped[str] = mapped_column(primary_key=True)
    customer: Mapped[str]
