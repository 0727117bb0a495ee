"""Milliseconds exist on the wire alone; this module turns them into instants and durations and back.

Message options of Nightshift: `entry` and `slot` on the message of a slot, `origin` on what such a message sends on,
`expires_at` on both. Slots and expiries are night time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

ENTRY = "entry"
SLOT = "slot"
ORIGIN = "origin"
EXPIRES_AT = "expires_at"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_ms(instant: datetime) -> int:
    """An aware instant as milliseconds since the epoch, rounded down."""
    return (instant - _EPOCH) // _MILLISECOND


def from_ms(milliseconds: int) -> datetime:
    """Milliseconds since the epoch as an aware instant in UTC."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def duration_ms(duration: timedelta) -> int:
    """A duration as whole milliseconds, rounded down."""
    return duration // _MILLISECOND
