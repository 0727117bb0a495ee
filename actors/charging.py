"""Charges, which wait for somebody else's payment gateway."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dramatiq import Message

from fleet import Budget, queue
from fleet.actor import current_message_id

charging = queue("charging")


@charging.actor(
    budget=Budget(
        soft=timedelta(seconds=60),
        hard=timedelta(seconds=90),
        because="one query and a message a subscription; asks no gateway itself",
    )
)
def charge_subscriptions() -> None:
    """Send a message for each subscription whose next period has begun."""
    from books import charging as charges

    charge_subscription.send_many(iter(charges.due()))


def charge_lost(message: Message[Any], reason: str) -> None:
    from books import outside

    outside.let_go(message, reason)


@charging.actor(
    on_lost=charge_lost,
    safe_args=("subscription_id", "period"),
    budget=Budget(
        soft=timedelta(seconds=100),
        hard=timedelta(seconds=130),
        because="the gateway is waited for five times at most, 20 s each: asked, sent, asked, sent again, asked",
    ),
)
def charge_subscription(subscription_id: int, period: str) -> None:
    """Charge one subscription for the period that begins on this day."""
    from books import charging as charges

    charges.charge(subscription_id, period, token=current_message_id())
