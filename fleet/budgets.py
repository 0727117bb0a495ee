"""Which budget holds for a message: what its sender asked for, else its actor's own, else its lane's.

A sender asks by stock Dramatiq's option `time_limit`, in milliseconds: that is the soft budget then, and the hard one
follows at the distance that the actor's, or its lane's, has. What is not a positive number, or would make a hard budget
of more than a week, is not heard.

Not guaranteed: a budget outside a loaded application, where no lane is known; an actor's own holds there too.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from dramatiq import Broker, Message, MessageProxy

from fleet import wire
from fleet.actor import FleetActor
from fleet.broker import FleetBroker
from fleet.declarations import Budget
from fleet.errors import BudgetInvalid

BECAUSE_ASKED = "the message's sender asked for it by time_limit"


class HeldBudget(NamedTuple):
    """A budget, and whose it is."""

    budget: Budget
    source: Literal["message", "actor", "lane"]


def budget_of(broker: Broker, message: Message[Any] | MessageProxy) -> HeldBudget | None:
    """The budget that holds for a message; None outside a loaded application, where no lane is known."""
    actor = broker.actors.get(message.actor_name)
    lane = broker.lanes.get(message.queue_name) if isinstance(broker, FleetBroker) else None
    if isinstance(actor, FleetActor) and actor.budget is not None:
        declared = HeldBudget(actor.budget, "actor")
    elif lane is not None:
        declared = HeldBudget(lane.budget, "lane")
    else:
        return None
    asked = _asked(message.options[wire.TIME_LIMIT], declared.budget) if wire.TIME_LIMIT in message.options else None
    return HeldBudget(asked, "message") if asked is not None else declared


def _asked(time_limit: object, declared: Budget) -> Budget | None:
    soft = wire.span(time_limit)
    if soft is None:
        return None
    try:
        return Budget(soft, soft + (declared.hard - declared.soft), because=BECAUSE_ASKED)
    except (BudgetInvalid, OverflowError):  # longer than any budget may be
        return None
