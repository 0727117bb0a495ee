"""Milliseconds exist on the wire alone; this module turns them into instants and durations and back.

Message options of Nightshift: `entry` and `slot` on the message of a slot, `origin` on what such a message sends on,
`expires_at` on both; `asked_at` on what any message sends on: the slot of the first, or when the first was sent.
`nonce` is drawn at each fire, since the id of a slot's message is always the same. What a person fires by hand has an
`entry` and a `nonce`, and no `slot`. All instants are night time. `lost` is a sentence on a message that stands for a
job which was cut off (its id is the job's and `-lost`): instead of the body, `on_lost` of its actor is called.
A chunk of an elastic entry has `entry`, its chain's number `chain` and which seed of that chain it comes of,
`generation`; and `expires_at`, the end of its night.
`left` is the real instant from which on workers of a release that could not run a message left it to others.
`delivery` is never sent: on what `on_lost` is called with it names the one delivery that was cut off, where another may
be running.

`due_at` is on what was sent with a delay or is tried again: the real instant, by its sender's clock, from which it
counts as waiting. Nothing is decided by it.

Of stock producers `time_limit` (how long a job may take) and `max_age` (from the message's own timestamp) are heard,
both in real time.

Anybody can write any of it, so what a message says is read by `span`, `instant` and `count`.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

from fleet.errors import ExpiryInvalid

ENTRY = "entry"
SLOT = "slot"
NONCE = "nonce"
ORIGIN = "origin"
EXPIRES_AT = "expires_at"
ASKED_AT = "asked_at"
DUE_AT = "due_at"
LOST, LOST_SUFFIX = "lost", "-lost"
DELIVERY = "delivery"
CHAIN, GENERATION = "chain", "generation"
LEFT = "left"
TIME_LIMIT, MAX_AGE = "time_limit", "max_age"
LONGEST_QUEUE_NAME = 64  # a process writes it down beside each job that it runs, where there is no more room

_DUE = re.compile(rb'"(?:due_at|eta)":\s?(\d+)[^{}]*\},\s?"message_id":\s?"[^"]*",\s?"message_timestamp":\s?\d+\}$')
_SENT = re.compile(rb'"message_timestamp":\s?(\d+)\}$')
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_SECONDS = datetime(2001, 1, 1, tzinfo=UTC)  # before it are seconds since the epoch, taken for milliseconds
_MOST_COUNTED = 1_000_000  # a longer number could be too long for JSON when it is counted on
_MILLISECOND = timedelta(milliseconds=1)


def to_ms(instant: datetime) -> int:
    """An aware instant as milliseconds since the epoch, rounded down."""
    return (instant - _EPOCH) // _MILLISECOND


def from_ms(milliseconds: int) -> datetime:
    """Milliseconds since the epoch as an aware instant in UTC."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def span(milliseconds: object) -> timedelta | None:
    """A positive number of milliseconds out of a message, which anybody can write; None if it is not one."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float) or not milliseconds > 0:
        return None
    try:
        duration = timedelta(milliseconds=milliseconds)
    except OverflowError:  # infinity too
        return None
    return duration if duration > timedelta(0) else None


def instant(milliseconds: object) -> datetime | None:
    """A number of milliseconds since the epoch out of a message, which anybody can write; None if it is not one."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int):
        return None
    try:
        return from_ms(milliseconds)
    except OverflowError:
        return None


def expiry_ms(found: object, actor: str) -> int | None:
    """What a sender gives as the `expires_at` of a message to an actor, as messages have it; None for never.

    Raises `ExpiryInvalid` for what is neither an aware datetime nor whole milliseconds since the epoch, nor None.
    """
    if found is None:
        return None
    if isinstance(found, datetime):
        if found.utcoffset() is None:
            raise ExpiryInvalid(actor, found, "it has no time zone")
        return to_ms(found)
    at = instant(found)
    if at is None:
        raise ExpiryInvalid(actor, found, f"{type(found).__name__} that is no instant")
    if at < _NO_SECONDS:
        raise ExpiryInvalid(actor, found, f"in milliseconds that is {at:%Y-%m-%d}; these may be seconds")
    return to_ms(at)


def count(found: object) -> int:
    """A counter out of a message, which anybody can write: from 0 to a million, and 0 if it is none."""
    return min(found, _MOST_COUNTED) if type(found) is int and found > 0 else 0


def duration_ms(duration: timedelta) -> int:
    """A duration as whole milliseconds, rounded down."""
    return duration // _MILLISECOND


def due_at(body: bytes) -> datetime | None:
    """From when a message counts as waiting, in real time; None for bytes that do not say.

    `body` may lack its beginning: what tells it is written last.
    """
    try:
        message = json.loads(body)
        options = message.get("options")
        told = options if isinstance(options, dict) else {}
        return instant(told.get("eta") or told.get(DUE_AT) or message["message_timestamp"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found = _DUE.search(body) or _SENT.search(body)
        return instant(int(found[1])) if found and len(found[1]) < 20 else None
