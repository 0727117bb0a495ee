"""Late means never: a message that has not started by its `expires_at` is dropped, and is no dead letter.

The age of a slot's message is measured from its slot, in night time. What a slot's message sends on (a fan-out)
inherits its expiry and its origin, unless it is sent with an expiry of its own (`expires_at=None` for none).

Not guaranteed: that a message which started in time ends in time; that is its budget's work.
"""

from __future__ import annotations

from typing import Any

from dramatiq import Broker, Message, MessageProxy, Middleware
from dramatiq.middleware import SkipMessage

from fleet import wire
from fleet.actor import current_message
from fleet.clock import clock
from fleet.logs import get_logger

log = get_logger(__name__)


class MessageExpired(SkipMessage):
    """Raised when a message is taken up after its `expires_at`."""


class Expiry(Middleware):
    """Drops what is late, and hands expiry and origin on to what a job sends."""

    def before_enqueue(self, broker: Broker, message: Message[Any], delay: int | None) -> None:
        current = current_message()
        if current is None or current.message_id == message.message_id:
            return
        inherited = {
            wire.EXPIRES_AT: current.options.get(wire.EXPIRES_AT),
            wire.ORIGIN: current.options.get(wire.ORIGIN) or _origin(current),
        }
        for name, value in inherited.items():
            if value is not None:
                message.options.setdefault(name, value)

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        expires_at = message.options.get(wire.EXPIRES_AT)
        if not isinstance(expires_at, int):
            return
        late = clock.now() - wire.from_ms(expires_at)
        if late.total_seconds() > 0:
            message.options["expired"] = True  # for the middleware above, whose after_skip hooks run next
            log.warning(
                "message_expired",
                actor=message.actor_name,
                queue=message.queue_name,
                message_id=message.message_id,
                origin=message.options.get(wire.ORIGIN) or _origin(message),
                late=str(late),
            )
            raise MessageExpired(f"{message.actor_name} expired {late} ago")


def _origin(message: Message[Any] | MessageProxy) -> str | None:
    """`entry@slot` of a slot's message."""
    entry, slot = message.options.get(wire.ENTRY), message.options.get(wire.SLOT)
    return f"{entry}@{wire.from_ms(slot).isoformat()}" if entry and isinstance(slot, int) else None
