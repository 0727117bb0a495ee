"""What leaves the house, and the subscriptions that are charged for."""

from __future__ import annotations

from datetime import date, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import UniqueConstraint, func
from sqlalchemy.orm import Mapped, mapped_column

from books.models.base import Base, shown_as_runs
from fleet.storage.leases import Lease


class EffectKind(StrEnum):
    FILING = "filing"  # a run's submission to the tax authority
    CHARGE = "charge"  # a subscription's period, at the payment gateway
    MAIL = "mail"  # an invoice, by SMTP, which cannot be asked what became of it
    SUMMARY = "summary"  # what became of an import or a batch, to whoever handed it in; by SMTP, too


class EffectStatus(StrEnum):
    WAITING = "waiting"  # the other side certainly does not have it; its next attempt sends it
    RUNNING = "running"  # a message (or a janitor) sends it or finds out about it, and holds its lease
    DONE = "done"  # the other side has it, once; `receipt` is its id there
    REFUSED = "refused"  # the other side decided against it, for good; `outcome` says why
    NOT_SENT = "not_sent"  # given up, or nobody wants it any more; the other side does not have it
    NEEDS_REVIEW = "needs_review"  # nobody can tell whether the other side has it; a person finds out, see `outcome`


class OutsideEffect(Lease, Base):
    """The intent to do one thing outside the house, written before it is tried; one row a thing, for ever.

    `subject` is the thing ("run 17", "subscription 5 2026-03-01"), `key` its Idempotency-Key, `body` what is sent: as
    it was at first, whatever changed since. `called_at` is when it was last about to be sent; None: never.
    """

    __tablename__ = "outside_effects"
    __table_args__ = (
        UniqueConstraint("kind", "subject"),
        *shown_as_runs("outside_effects", "coalesce(finished_at, started_at, intended_at)"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    subject: Mapped[str]
    key: Mapped[str] = mapped_column(unique=True)
    body: Mapped[dict[str, Any]]
    intended_at: Mapped[datetime] = mapped_column(server_default=func.now())
    called_at: Mapped[datetime | None]
    receipt: Mapped[str | None]


class SubscriptionStatus(StrEnum):
    ACTIVE = "active"  # charged when its next period begins
    DECLINED = "declined"  # the card was refused; not charged again until a person makes it active
    NEEDS_REVIEW = "needs_review"  # nobody can tell whether the last charge was made; a person finds out
    CANCELLED = "cancelled"  # ended by its customer; never charged again


class Subscription(Base):
    """A customer's plan. `next_period` is the first day of the period to be charged next, `billing_day` the day of the
    month on which periods begin (in shorter months their last). `method` is the gateway's name for the card.
    """

    __tablename__ = "subscriptions"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    plan: Mapped[str]
    amount_cents: Mapped[int]
    currency: Mapped[str]
    method: Mapped[str]
    billing_day: Mapped[int]
    next_period: Mapped[date]
    status: Mapped[str] = mapped_column(index=True)
    outcome: Mapped[str | None]
