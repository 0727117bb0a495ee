"""The night: 24 hours, a row a lane, as it went so far and is to go on; and tomorrow's as planned, with what collides.

A drawing reads a night of ledgers and runs, so it is made once for everybody and kept for half a minute; while the next
is made, the others see it. What it shows stands below it in words, too.
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
_SHOWN_SECONDS = 300.0  # an older one is shown to nobody, even while the next is made


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
        self._making: dict[str, threading.Lock] = {}
        self._made: dict[str, tuple[float, Drawn]] = {}

    def forget(self) -> None:
        """Have all drawn anew."""
        self._made.clear()

    def get(self, name: str, make: Callable[[], Timeline]) -> Drawn:
        """What was made for a name within the last half minute; else it is made, by one thread at a time.

        While one makes it the others get what was made before: each that waited would be missing for all pages. They
        wait where there is none, or one that is minutes old.
        """
        if drawn := self._made_within(KEPT_SECONDS, name):
            return drawn
        older = self._made_within(_SHOWN_SECONDS, name)
        making = self._making.setdefault(name, threading.Lock())
        if not making.acquire(blocking=older is None) and older is not None:
            return older
        try:  # another thread may have made it meanwhile
            return self._made_within(KEPT_SECONDS, name) or self._make(name, make)
        finally:
            making.release()

    def _made_within(self, seconds: float, name: str) -> Drawn | None:
        made = self._made.get(name)
        return made[1] if made is not None and self._monotonic() - made[0] <= seconds else None

    def _make(self, name: str, make: Callable[[], Timeline]) -> Drawn:
        began = self._monotonic()
        drawn = _drawn(make())
        self._made[name] = began, drawn
        return drawn


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
