"""Hours as a person writes them, in a form, an address or at the command line."""

from __future__ import annotations

from datetime import timedelta

from fleet.clock import clock
from fleet.errors import DeclarationInvalid


def hours(field: str, written: str | float) -> timedelta:
    """A span in hours; raises `DeclarationInvalid` for what is none, or is more than the calendar holds from now on
    or until now."""
    try:
        span = timedelta(hours=float(written))
        for instant in (clock.now(), clock.real_now()):
            _ = (instant - span, instant + span)
    except (ValueError, OverflowError):
        shown = str(written)[:40]
        raise DeclarationInvalid(f"{field} {shown!r}: give a number of hours, for example 1.5.") from None
    return span
