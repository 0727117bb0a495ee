"""Which budget holds for a message."""

from __future__ import annotations

from dramatiq import Broker, MessageProxy

from fleet.actor import FleetActor
from fleet.broker import FleetBroker
from fleet.declarations import Budget


def budget_of(broker: Broker, message: MessageProxy) -> Budget | None:
    """The budget that holds for a message; None outside a loaded application, where no lane is known."""
    actor = broker.actors.get(message.actor_name)
    own = actor.budget if isinstance(actor, FleetActor) else None
    lane = broker.lanes.get(message.queue_name) if isinstance(broker, FleetBroker) else None
    return own or (lane.budget if lane else None)
