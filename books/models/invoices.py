"""Invoices that customers send to theirs."""

from __future__ import annotations

from datetime import date, datetime
from enum import StrEnum

from sqlalchemy.orm import Mapped, mapped_column

from books.models.base import Base


class InvoiceStatus(StrEnum):
    DRAFT = "draft"  # still being written; never mailed
    DUE = "due"  # released by a person; the next morning mails it
    SENT = "sent"  # claimed for its one mail; `sent_at` stands once the mail server took it
    OVERDUE = "overdue"  # mailed, and not paid by its day
    PAID = "paid"  # settled


class Invoice(Base):
    """One invoice. `due_on` is the day it is to be paid by.

    One that is `sent` without `sent_at` was claimed and its mail's fate is unknown: a person decides.
    """

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
