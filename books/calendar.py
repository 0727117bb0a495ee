"""The bookkeeping's calendar: a day is a day in Berlin, where the customers and their banks are."""

from __future__ import annotations

from datetime import date
from zoneinfo import ZoneInfo

from fleet.clock import clock

BERLIN = ZoneInfo("Europe/Berlin")


def today() -> date:
    """The date in Berlin, in night time."""
    return clock.now().astimezone(BERLIN).date()
