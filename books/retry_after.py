"""Reads the Retry-After header of any server: seconds, or an HTTP date (RFC 9110, 10.2.3)."""

from __future__ import annotations

from datetime import UTC, timedelta
from email.utils import parsedate_to_datetime

from fleet.clock import clock


def retry_after(value: str | None) -> timedelta | None:
    """The wait that a header asks for, a night duration that may be negative; None where it says nothing readable."""
    value = (value or "").strip()
    if value.isascii() and value.isdigit():
        return timedelta(seconds=int(value[:9]))
    try:
        instant = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)) - clock.now()
