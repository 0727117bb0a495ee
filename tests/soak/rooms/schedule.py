"""The bookkeeping's schedule, an entry whose cron changes with each deploy, and wall clocks that a soak can move."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from config.schedule_of_books import SCHEDULE as BOOKS

from fleet import Entry

CRON = "* * * * *"  # written anew by each deploy
SCHEDULE = [
    *BOOKS,
    Entry(
        "soak_tick",
        cron=CRON,
        tz="Europe/Berlin",
        expires=timedelta(minutes=1),
        because="what a deploy changes has to be judged over the change",
    ),
]


def _wear_a_wall_clock(hand: Path) -> None:
    """Have this process's wall clock go before or behind by what stands in the file."""
    import apscheduler.schedulers.base as scheduler

    from fleet.clock import Clock

    def wall(*_: object) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(hand.read_text()))

    class Hands:
        now = staticmethod(wall)

    patched: Any = (Clock, scheduler)
    patched[0].real_now, patched[1].datetime = wall, Hands


if "beat" in sys.argv and "SOAK_WALL" in os.environ:
    _wear_a_wall_clock(Path(os.environ["SOAK_WALL"]))
