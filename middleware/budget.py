"""Grants each message its soft budget: what its sender asked for, else its actor's own, else its lane's.

The grant is taken by the actor's body (`fleet.deadline.run_within`), around which alone the watchdog is armed. A job
that its deadline ended is a dead letter: `throws` of every actor holds `DeadlineExceeded`, so it is not tried again.

Stock's `TimeLimit` is not installed. Its option `time_limit` on a message is heard (`fleet.budgets`); one that cannot
be is said in one line, and the declared budget holds. Not guaranteed: the hard budget, which is the supervisor's work.
"""

from __future__ import annotations

from typing import Any

from dramatiq import Broker, MessageProxy, Middleware

from fleet import deadline, wire
from fleet.budgets import budget_of
from fleet.logs import get_logger

__all__ = ["BudgetGrant", "budget_of"]

log = get_logger(__name__)


class BudgetGrant(Middleware):
    """Sets the soft budget before a body runs, and takes back one that was not used."""

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        held = budget_of(broker, message)
        if wire.TIME_LIMIT in message.options and (held is None or held.source != "message"):
            log.warning(
                "time_limit_ignored",
                found=repr(message.options[wire.TIME_LIMIT])[:80],
                holds=held.source if held else None,
                soft=str(held.budget.soft) if held else None,
            )
        deadline.grant(held.budget.soft if held else None)

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        deadline.grant(None)

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        deadline.grant(None)
