"""Budgets: what each actor's is, whose it is and why; and what its jobs were seen to need.

What they need is reckoned from steps and slots of two weeks in PostgreSQL (`fleet jobs --advise`), five minutes old at
most; what their bodies took lately is the last reading's.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request

from fleet import readings
from fleet.advice import Advice, judged
from fleet.app import effective_budget
from fleet.console.desk import Desk
from fleet.console.rendering import Page
from fleet.errors import FleetError

_KEPT_SECONDS = 300.0


class Budgets:
    """Keeps what was reckoned for a while; two people at once reckon twice."""

    def __init__(self) -> None:
        self._reckoned = float("-inf")
        self._advice: dict[str, Advice] = {}
        self._unread: str | None = None

    def build(self, desk: Desk, request: Request) -> dict[str, Any]:
        reading = readings.latest(desk.broker)
        lately = reading.actors if reading is not None else {}
        if time.monotonic() - self._reckoned > _KEPT_SECONDS:
            self._reckon(desk)
        rows = []
        for actor in sorted(desk.app.actors.values(), key=lambda actor: (actor.queue_name, actor.actor_name)):
            lane = desk.app.lane_of(actor.queue_name)
            budget = effective_budget(actor, lane) if lane else actor.budget
            if budget is not None:
                name = actor.actor_name
                rows.append((actor, lane, budget, self._advice.get(name), lately.get(name)))
        return {"rows": rows, "unread": self._unread}

    def _reckon(self, desk: Desk) -> None:
        engine = desk.engine()
        self._unread = None
        try:
            if engine is not None:
                with engine.connect() as connection:
                    self._advice = {one.actor: one for one in judged(desk.app, connection)}
            self._reckoned = time.monotonic()
        except (FleetError, SQLAlchemyError) as error:
            self._unread = str(getattr(error, "orig", None) or error).splitlines()[0]


PAGE = Page("/budgets", "Budgets", "budgets.html", Budgets().build)
