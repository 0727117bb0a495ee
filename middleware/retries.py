"""Stock Dramatiq's retries with the shape a lane or an actor declares, and with `RetryLater` honoured.

Delays are night durations, so that a compressed night waits compressed. A `RetryLater` uses up an attempt.
"""

from __future__ import annotations

from typing import Any

from dramatiq import Broker, MessageProxy, Retry
from dramatiq.middleware import Retries

from fleet import declarations, wire
from fleet.actor import FleetActor
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.errors import RetryLater


class LaneRetries(Retries):
    """Looks up the retry shape when a job failed; without a lane and an own shape, stock's defaults hold."""

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        if exception is None:
            return
        shape = _shape(broker, message)
        if shape is not None:
            message.options.setdefault("max_retries", shape.attempts - 1)
            message.options.setdefault("min_backoff", wire.duration_ms(clock.to_real(shape.first)))
            message.options.setdefault("max_backoff", wire.duration_ms(clock.to_real(shape.longest)))
        if isinstance(exception, RetryLater):
            delayed = Retry(str(exception), delay=wire.duration_ms(clock.to_real(exception.after)))
            super().after_process_message(broker, message, result=result, exception=delayed)  # type: ignore[no-untyped-call]
            return
        super().after_process_message(broker, message, result=result, exception=exception)  # type: ignore[no-untyped-call]


def _shape(broker: Broker, message: MessageProxy) -> declarations.Retry | None:
    actor = broker.actors.get(message.actor_name)
    own = actor.retry if isinstance(actor, FleetActor) else None
    lane = broker.lanes.get(message.queue_name) if isinstance(broker, FleetBroker) else None
    return own or (lane.retry if lane else None)
