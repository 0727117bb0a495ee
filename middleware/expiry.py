"""Late means never: a message that has not started by its `expires_at` is dropped, and is no dead letter.

The age of a slot's message is measured from its slot, in night time. What a slot's message sends on (a fan-out)
inherits its expiry and its origin, unless it is sent with an expiry of its own (`expires_at=None` for none). What is
delayed past the expiry that it inherits can never run: it is sent, and said in one line (`delayed_past_expiry`).
Whatever a message sends on inherits the instant that it answers for (`fleet.actor.asked_at`).

An `expires_at` that is no whole number of milliseconds is another producer's (`FleetActor` refuses it): it is said in
one line each time the message is taken up, nothing expires, and nothing inherits it.

Stock's `AgeLimit` is not installed. The option `max_age` of a stock producer is heard: the message is late that many
milliseconds after its own timestamp, in real time, and counts as expired (stock makes it a dead letter). What such a
job sends on does not inherit it. A `max_age` that is not a positive number is said in one line, and nothing expires.

Not guaranteed: that a message which started in time ends in time; that is its budget's work.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from dramatiq import Broker, Message, MessageProxy, Middleware
from dramatiq.middleware import SkipMessage

from fleet import wire
from fleet.actor import asked_at, current_message
from fleet.clock import clock
from fleet.declarations import ZERO
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
            wire.ORIGIN: current.options.get(wire.ORIGIN) or _origin(current),
            wire.ASKED_AT: wire.to_ms(asked_at(current)),
        }
        for name, value in inherited.items():
            if value is not None:
                message.options.setdefault(name, value)
        expires_at = wire.instant(current.options.get(wire.EXPIRES_AT))
        if expires_at is not None and wire.EXPIRES_AT not in message.options:
            message.options[wire.EXPIRES_AT] = wire.to_ms(expires_at)
            _say_if_never(message, delay, expires_at)

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        if wire.LOST in message.options:  # what ends a job's row is never late
            return
        late = max(_late(message), _over_age(message))
        if late > ZERO:
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


def _say_if_never(message: Message[Any], delay: int | None, expires_at: datetime) -> None:
    """Say at once of a message that comes after its expiry what would be said hours later, when it is dropped."""
    wait = wire.span(delay)
    late = wait - (expires_at - clock.now()) if wait is not None else ZERO
    if late > ZERO:
        log.warning(
            "delayed_past_expiry",
            actor=message.actor_name,
            queue=message.queue_name,
            message_id=message.message_id,
            origin=message.options.get(wire.ORIGIN),
            late=str(late),
            instead="send it with expires_at=None, or with an expiry of its own",
        )


def _late(message: MessageProxy) -> timedelta:
    found = message.options.get(wire.EXPIRES_AT)
    expires_at = wire.instant(found)
    if expires_at is not None:
        return clock.now() - expires_at
    if found is not None:
        log.warning("expires_at_ignored", actor=message.actor_name, found=repr(found)[:80])
    return ZERO


def _over_age(message: MessageProxy) -> timedelta:
    """By how much a message is older than its sender wanted."""
    if wire.MAX_AGE not in message.options:
        return ZERO
    most = wire.span(message.options[wire.MAX_AGE])
    if most is None or not isinstance(message.message_timestamp, int):
        log.warning("max_age_ignored", actor=message.actor_name, found=repr(message.options[wire.MAX_AGE])[:80])
        return ZERO
    return clock.real_now() - wire.from_ms(message.message_timestamp) - most


def _origin(message: Message[Any] | MessageProxy) -> str | None:
    """`entry@slot` of a slot's message."""
    entry, slot = message.options.get(wire.ENTRY), message.options.get(wire.SLOT)
    return f"{entry}@{wire.from_ms(slot).isoformat()}" if entry and isinstance(slot, int) else None
