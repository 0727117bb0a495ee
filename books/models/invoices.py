"""Invoices that customers send to theirs."""

from __future__ import annotations

from datetime import date, datetime
from enum import StrEnum

from sqlalchemy.orm import Mapped, mapped_column

from books.models.base import Base


class InvoiceStatus(StrEnum):
    DRAFT = "draft"  # still being written; never mailed
    DUE = "due"  # released by a person; the next morning mails it
    SENT = "sent"  # the mail server took its mail, at `sent_at`
    NEEDS_REVIEW = "needs_review"  # nobody can tell whether its mail went out; a person looks for its `message_id`
    OVERDUE = "overdue"  # mailed, and not paid by its day
    PAID = "paid"  # settled


class Invoice(Base):
    """One invoice. `due_on` is the day it is to be paid by. Its mail is an outside effect, which moves it on."""

    __tablename__ = "invoices"

    id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[str] = mapped_column(unique=True)
    customer: Mapped[str]
    customer_email: Mapped[str]
    amount_cents: Mapped[int]
    currency: Mapped[str]
    due_on: Mapped[date]
    status: Mapped[str] = mapped_column(index=True)
    message_id: Mapped[str | None]
    sent_at: Mapped[datetime | None]
    outcome: Mapped[str | None]
