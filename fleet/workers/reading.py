"""Makes a message of the bytes that were fetched, or a dead letter of bytes that make none.

Whatever the bytes are, the lane goes on: too many of them, none of the encoder's, fields of a Dramatiq to come, an
actor that this worker does not know.

A message is of the queue that it was fetched from, whatever queue its body names: that name is anybody's to write, and
budgets, retries, quotas and metrics go by it. Not guaranteed: that a result stored by Dramatiq's `Results` is found
under the other name.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from dramatiq import Message, MessageProxy
from dramatiq.errors import ActorNotFound, DecodeError
from dramatiq.message import get_encoder

from fleet.broker.dead import LONGEST_EXCEPTION
from fleet.broker.ends import End, Fetched
from fleet.broker.sealing import LARGEST_MESSAGE, LARGEST_RETRY, check_depth
from fleet.clock import clock
from fleet.errors import FleetError, MessageTooDeep, MessageTooLarge
from fleet.logs import brief, get_logger
from fleet.payloads import PayloadSealed

log = get_logger(__name__)

_FIELDS = frozenset(field.name for field in fields(Message))
_TEXTS = ("queue_name", "actor_name", "message_id")


class MessageNewer(FleetError):
    """Raised when a message has fields that this version's messages do not have."""


class FleetMessage(MessageProxy):
    """A message, where it was fetched, and from when it was due if a stock producer delayed it (real milliseconds)."""

    def __init__(self, message: Message[Any], fetched: Fetched, due: object = None) -> None:
        super().__init__(message)
        self.fetched, self.due = fetched, due


def read(one: Fetched) -> FleetMessage:
    """The message that was fetched.

    Raises `MessageTooLarge`, `MessageTooDeep`, `MessageNewer`, `PayloadSealed`, or whatever the encoder raises for
    bytes that are not its own.
    """
    if len(one.body) > LARGEST_RETRY:
        raise MessageTooLarge("?", len(one.body), LARGEST_MESSAGE)
    try:
        message: Message[Any] = Message.decode(one.body)
    except Exception as error:
        if isinstance(error, DecodeError) and isinstance(error.error, PayloadSealed):
            raise error.error from None
        unknown = _fields_to_come(one.body)
        if not unknown:
            raise
        raise MessageNewer(
            f"The message has fields that this worker's Dramatiq does not know: {', '.join(unknown)[:200]}. "
            f"Was it sent by a newer one? Upgrade the workers, then requeue it."
        ) from error
    check_depth(message)
    eta = message.options.pop("eta", None)  # of a stock producer: its delay is over
    message.options["redis_message_id"] = one.id
    return FleetMessage(of_queue(message, one.queue), one, eta)


def of_queue(message: Message[Any], queue: str) -> Message[Any]:
    """A message that was fetched from a queue as one of that queue.

    What stock Dramatiq delayed names the queue's `.DQ`; what somebody moved there, or put there by hand, any other.
    Raises `TypeError` for a queue's or an actor's name, or an id, that is no text.
    """
    for name in _TEXTS:
        if not isinstance(found := getattr(message, name), str):
            raise TypeError(f"its {name} is no text: {type(found).__name__}")
    return message if message.queue_name == queue else message.copy(queue_name=queue)


def _fields_to_come(body: bytes) -> list[str]:
    """What a message has beyond every field that one has here; empty for bytes that are no message."""
    try:
        found = get_encoder().decode(body)
    except Exception:
        return []
    return sorted(found.keys() - _FIELDS) if isinstance(found, dict) and found.keys() >= _FIELDS else []


def unreadable(one: Fetched, error: Exception) -> End:
    """The dead letter of a message that no thread can run: why, in its decoder's words, and nothing of its body."""
    reason = "undecodable"
    if isinstance(error, ActorNotFound):
        reason = "unknown actor"
    elif isinstance(error, MessageTooLarge):
        reason = "too large"
    elif isinstance(error, MessageTooDeep):
        reason = "too deep"
    elif isinstance(error, MessageNewer):
        reason = "newer version"
    elif isinstance(error, PayloadSealed):
        reason = "sealed"
    shown = one.id.encode(errors="surrogateescape").decode(errors="backslashreplace")
    said = brief(error, LONGEST_EXCEPTION)
    log.error("message_unreadable", queue=one.queue, id=shown, reason=reason, error=said, dead_letter=True)
    known = {
        "reason": reason,
        "exception": said,
        "traceback": "",
        "attempts": 0,
        "worker": one.worker,
    }
    known["died"] = clock.real_now().isoformat()
    return one.end("dead", second=json.dumps(known).encode())
