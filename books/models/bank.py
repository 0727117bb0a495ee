"""Connections to banks, their accounts, what happened on them, and the categories it is sorted into."""

from __future__ import annotations

from datetime import date, datetime
from enum import StrEnum

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint, func, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from books.models.base import Base
from fleet.storage.leases import Lease


class ConnectionStatus(StrEnum):
    CONNECTED = "connected"  # the owner's consent stands; its accounts are synced
    EXPIRED = "expired"  # the consent ended; the owner has to connect the bank again


class BankConnection(Base):
    """A customer's consent at one institution, reaching one or more accounts."""

    __tablename__ = "bank_connections"

    id: Mapped[int] = mapped_column(primary_key=True)
    requisition_id: Mapped[str] = mapped_column(unique=True)
    institution: Mapped[str]
    customer: Mapped[str]
    status: Mapped[str] = mapped_column(default=ConnectionStatus.CONNECTED)


class AccountStatus(StrEnum):
    IDLE = "idle"  # nothing works on it; the next slot syncs it
    RUNNING = "running"  # a message syncs it and holds its lease
    FAILED = "failed"  # the last sync ended without all pages; `outcome` says why, the next slot tries again
    CONSENT_EXPIRED = "consent_expired"  # only its owner can go on, by connecting the bank again


class BankAccount(Lease, Base):
    """An account. One without a connection is filled by hand (imports) and is never synced.

    `lease_message` is the message that synced it last, also after it ended. `pages_done` counts the pages that its
    current or last sync committed, and `covers_until` is when that began (or the slot it began for, if later): it
    answers every request made up to then. `synced_through` is the last day that a whole sync covered.
    """

    __tablename__ = "bank_accounts"
    __table_args__ = (Index("ix_bank_accounts_customer", "customer", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    connection_id: Mapped[int | None] = mapped_column(ForeignKey("bank_connections.id"), index=True)
    external_id: Mapped[str] = mapped_column(unique=True)
    iban: Mapped[str | None]
    name: Mapped[str]
    currency: Mapped[str]
    customer: Mapped[str]
    balance_cents: Mapped[int | None]
    balance_at: Mapped[datetime | None]
    # What the books lack before their first row: balance minus all booked rows, set by the first audit.
    opening_cents: Mapped[int | None]
    synced_through: Mapped[date | None]
    last_synced_at: Mapped[datetime | None]
    covers_until: Mapped[datetime | None]
    pages_done: Mapped[int] = mapped_column(default=0, server_default="0")


class Category(Base):
    """Reference data, seeded by the migration: a row whose text holds one of the keywords belongs here."""

    __tablename__ = "categories"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    keywords: Mapped[list[str]] = mapped_column(ARRAY(String))


class Transaction(Base):
    """A row of an account, once: pending first, then booked. Money in is positive.

    `stored_by` is the message that stored it first, `categorized_by` is `rule` or `model`.

    While it has no category, `unmatched_by` is the fingerprint of the keywords of which none was found in it.
    `sorting_message` is the message that has taken it to ask the model, alone until `sorting_until` (real time), and
    `sorting_delivery` which delivery of it; `sorting_tries` counts how often the model was asked. `unsorted_because`
    says why nobody tries any more: a person sorts it.
    """

    __tablename__ = "transactions"
    __table_args__ = (
        UniqueConstraint("account_id", "external_id"),
        Index(
            "ix_transactions_to_sort",
            "account_id",
            "unmatched_by",
            "id",
            postgresql_where=text("category_id IS NULL AND unsorted_because IS NULL"),
        ),
        Index(
            "ix_transactions_sorting",
            "sorting_message",
            postgresql_where=text("category_id IS NULL AND unsorted_because IS NULL AND sorting_message IS NOT NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("bank_accounts.id"))
    external_id: Mapped[str]
    booked: Mapped[bool]
    booking_date: Mapped[date]
    value_date: Mapped[date | None]
    amount_cents: Mapped[int]
    currency: Mapped[str]
    counterparty: Mapped[str | None]
    remittance: Mapped[str]
    category_id: Mapped[int | None] = mapped_column(ForeignKey("categories.id"))
    categorized_by: Mapped[str | None]
    unmatched_by: Mapped[int | None]
    sorting_message: Mapped[str | None]
    sorting_delivery: Mapped[str | None]
    sorting_until: Mapped[datetime | None]
    sorting_tries: Mapped[int] = mapped_column(default=0, server_default="0")
    unsorted_because: Mapped[str | None]
    stored_by: Mapped[str]
    stored_at: Mapped[datetime] = mapped_column(server_default=func.now())
