"""Grants each message its soft budget: its actor's own, else its lane's.

The grant is taken by the actor's body (`fleet.deadline.run_within`), around which alone the watchdog is armed. A job
that its deadline ended is a dead letter: `throws` of every actor holds `DeadlineExceeded`, so it is not tried again.

Not guaranteed yet: the hard budget. A job that does not leave at its soft budget runs on.
"""

from __future__ import annotations

from typing import Any

from dramatiq import Broker, MessageProxy, Middleware

from fleet import deadline
from fleet.budgets import budget_of


class BudgetGrant(Middleware):
    """Sets the soft budget before a body runs, and takes back one that was not used."""

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        budget = budget_of(broker, message)
        deadline.grant(budget.soft if budget else None)

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        deadline.grant(None)

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        deadline.grant(None)
