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
        for name, value in _options(broker, message).items():
            message.options.setdefault(name, value)
        if isinstance(exception, RetryLater):
            delayed = Retry(str(exception), delay=wire.duration_ms(clock.to_real(exception.after)))
            super().after_process_message(broker, message, result=result, exception=delayed)  # type: ignore[no-untyped-call]
            return
        super().after_process_message(broker, message, result=result, exception=exception)  # type: ignore[no-untyped-call]


def _options(broker: Broker, message: MessageProxy) -> dict[str, int]:
    """The shape in stock's words, without those that the actor was declared with (`max_retries=`) itself."""
    actor = broker.actors.get(message.actor_name)
    own = actor.retry if isinstance(actor, FleetActor) else None
    lane = broker.lanes.get(message.queue_name) if isinstance(broker, FleetBroker) else None
    shape: declarations.Retry | None = own or (lane.retry if lane else None)
    if actor is None or shape is None:
        return {}
    options = {
        "max_retries": shape.attempts - 1,
        "min_backoff": wire.duration_ms(clock.to_real(shape.first)),
        "max_backoff": wire.duration_ms(clock.to_real(shape.longest)),
    }
    return {name: value for name, value in options.items() if name not in actor.options}
