"""Charges subscriptions: each period of each once, by the payment gateway, whoever asks for it and however often.

`due` says which; each is a message of its own, so that one card that hangs delays no other. A period is charged under a
key made of subscription and period. One period a pass: a subscription that is months behind catches up a night each.

What is cancelled before its charge is called is not charged; the charge then ends as `not_sent`.

Not guaranteed: that money comes. A refused card ends as `declined`, readably, and is not tried again by itself. Nor
that a cancellation in the seconds in which the gateway is called comes in time: the period is charged then.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from books import clients, outside
from books.calendar import today
from books.leasing import is_last_attempt
from books.models import EffectKind, EffectStatus, OutsideEffect, Subscription, SubscriptionStatus
from books.outside import Receipt
from fleet.logs import get_logger
from fleet.storage import session

log = get_logger(__name__)

_BECOMES = {
    EffectStatus.WAITING: SubscriptionStatus.ACTIVE,
    EffectStatus.DONE: SubscriptionStatus.ACTIVE,
    EffectStatus.REFUSED: SubscriptionStatus.DECLINED,
    EffectStatus.NEEDS_REVIEW: SubscriptionStatus.NEEDS_REVIEW,
}


class Charge:
    """A subscription's period: `subject` is "subscription 5 2026-03-01"."""

    name, askable, gives_up = EffectKind.CHARGE, True, False

    @contextmanager
    def ready(self, effect: OutsideEffect) -> Iterator[Callable[[], Receipt]]:
        with clients.limited(clients.PAYMENTS):
            yield lambda: clients.payments().send(effect.key, effect.body)

    def ask(self, effect: OutsideEffect) -> Receipt | None:
        return clients.payments().ask(effect.key)

    def unwanted(self, s: Session, effect: OutsideEffect) -> str | None:
        subscription_id, period = _of(effect)
        subscription = s.get_one(Subscription, subscription_id, with_for_update={"read": True})
        if subscription.status != SubscriptionStatus.ACTIVE:
            return f"its subscription is {subscription.status}"
        if subscription.next_period != period:
            return f"its subscription's next period begins on {subscription.next_period}"
        return None

    def moved(self, s: Session, effect: OutsideEffect, status: EffectStatus, outcome: str) -> None:
        if status is EffectStatus.NOT_SENT:
            return  # What its customer or a person made of it stands.
        subscription_id, period = _of(effect)
        subscription = s.get_one(Subscription, subscription_id)
        values: dict[str, Any] = {"status": _BECOMES[status], "outcome": f"period of {period}: {outcome}"}
        if status is EffectStatus.DONE:
            values["next_period"] = following(period, subscription.billing_day)
        # Its customer may have ended it meanwhile, which stands.
        charged = Subscription.status.in_((SubscriptionStatus.ACTIVE, SubscriptionStatus.NEEDS_REVIEW))
        same = (Subscription.id == subscription_id) & (Subscription.next_period == period)
        s.execute(update(Subscription).where(same, charged).values(**values))

    def message(self, effect: OutsideEffect) -> tuple[str, tuple[Any, ...]]:
        subscription_id, period = _of(effect)
        return "charge_subscription", (subscription_id, period.isoformat())


def due() -> list[tuple[int, str]]:
    """Subscription and period (its first day) of every charge that is due."""
    begun = (Subscription.status == SubscriptionStatus.ACTIVE) & (Subscription.next_period <= today())
    with session() as s:
        rows = s.execute(select(Subscription.id, Subscription.next_period).where(begun).order_by(Subscription.id)).all()
    log.info("charges_due", count=len(rows))
    return [(row.id, row.next_period.isoformat()) for row in rows]


def charge(subscription_id: int, period: str, token: str) -> None:
    """Charge a subscription for the period that begins on this day, unless that was done or is being done.

    Raises `NotTaken`, `Limited` and `Unclear`; `LeaseLost`; `DeadlineExceeded`.
    """
    with session() as s:
        subscription = s.get_one(Subscription, subscription_id)
        wanted = subscription.status == SubscriptionStatus.ACTIVE and subscription.next_period.isoformat() == period
        subject = f"subscription {subscription_id} {period}"
        body = {
            "reference": subject,
            "amount_cents": subscription.amount_cents,
            "currency": subscription.currency,
            "method": subscription.method,
        }
        key = f"charge-{subscription_id}-{period}"
        held = outside.intend(s, EffectKind.CHARGE, subject, key=key, body=body, token=token) if wanted else None
    if held is None:
        log.info("charge_not_wanted", subject=subject)
        return
    last = is_last_attempt()
    outside.carry_out(Charge(), held, park=last, give_up=last)


def following(period: date, billing_day: int) -> date:
    """The first day of the period after this one: the billing day of the next month, or that month's last."""
    year, month = (period.year + 1, 1) if period.month == 12 else (period.year, period.month + 1)
    return date(year, month, min(billing_day, calendar.monthrange(year, month)[1]))


def _of(effect: OutsideEffect) -> tuple[int, date]:
    _, subscription_id, period = effect.subject.split()
    return int(subscription_id), date.fromisoformat(period)
