"""Work that waits for somebody else's bank API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dramatiq import Message

from fleet import Budget, queue
from fleet.actor import current_asked_at, current_message_id

transaction_sync = queue("transaction_sync")


@transaction_sync.actor(
    budget=Budget(
        soft=timedelta(seconds=60),
        hard=timedelta(seconds=90),
        because="one query and a message an account; Redis slower than that loses the slot anyway",
    )
)
def update_all_transactions() -> None:
    """Fan out to every connected account that was not synced since."""
    from books import syncing

    accounts = syncing.accounts_to_sync(current_asked_at())
    update_transactions_by_bank_account.send_many((account_id,) for account_id in accounts)


def account_lost(message: Message[Any], reason: str) -> None:
    from books import syncing

    syncing.account_lost(message, reason)


@transaction_sync.actor(
    on_lost=account_lost,
    safe_args=("account_id",),
    budget=Budget(
        soft=timedelta(minutes=5), hard=timedelta(minutes=7), because="two pages of 90 days at the aggregator's p99"
    ),
)
def update_transactions_by_bank_account(account_id: int) -> None:
    """Bring one account's transactions up to date."""
    from books import syncing

    syncing.sync_transactions(account_id, token=current_message_id(), asked_at=current_asked_at())


@transaction_sync.actor  # the lane's budget
def update_accounts() -> None:
    """Ask for every account's balance."""
    from books import syncing

    syncing.update_balances()


@transaction_sync.actor  # the lane's budget
def sync_all_active_integrations() -> None:
    """Take over which consents stand."""
    from books import syncing

    syncing.refresh_connections()
