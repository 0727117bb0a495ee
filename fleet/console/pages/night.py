"""The night: 24 hours, a row a lane, as it went so far and is to go on; and tomorrow's as planned, with what collides.

A drawing reads a night of ledgers and runs, so it is made once for everybody and kept for half a minute. What it shows
stands below it in words, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from markupsafe import Markup
from starlette.requests import Request

from fleet.clock import clock
from fleet.console.desk import Desk
from fleet.console.rendering import Page
from fleet.night_plan import coming, plan, tonight
from fleet.timeline import Timeline, svg

KEPT_SECONDS = 30.0


@dataclass(frozen=True)
class Drawn:
    """A timeline as a page shows it."""

    title: str
    svg: Markup
    remarks: list[str]
    changes: list[str]


class Kept:
    """What was drawn last, by name, for as long as it is fresh."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._made: dict[str, tuple[float, Drawn]] = {}

    def forget(self) -> None:
        """Have all drawn anew."""
        self._made.clear()

    def get(self, name: str, make: Callable[[], Timeline]) -> Drawn:
        """What was made for a name within the last half minute; else it is made, by one thread at a time."""
        with self._lock:
            made = self._made.get(name)
            if made is None or self._monotonic() - made[0] > KEPT_SECONDS:
                made = self._made[name] = (self._monotonic(), _drawn(make()))
            return made[1]


KEPT = Kept()


def build(desk: Desk, request: Request) -> dict[str, Any]:
    now = clock.now()
    days = {"tonight": now, "tomorrow": now + timedelta(days=1)}
    which = request.query_params.get("which")
    which = which if which in days else "tonight"
    if which == "tonight":
        drawn = KEPT.get(f"{desk.broker.namespace} tonight", lambda: tonight(desk.app, desk.broker))
    else:
        day = coming(desk.app, now)
        drawn = KEPT.get(f"{desk.broker.namespace} {day}", lambda: plan(desk.app, desk.broker, day))
    return {"which": which, "drawn": drawn}


def _drawn(timeline: Timeline) -> Drawn:
    # `svg` builds a tree of elements and writes it out escaped; there is no text of another's making between its signs.
    return Drawn(timeline.title, Markup(svg(timeline)), timeline.remarks(), timeline.changes())


PAGE = Page("/night", "The night", "night.html", build, live=True)
