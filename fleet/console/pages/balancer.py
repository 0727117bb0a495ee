"""Balancer: of each elastic entry how much may run now and why, what was decided lately, and the forms that hold it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from starlette.requests import Request

from fleet import allowance, by_hand
from fleet.allowance import Allowance, Decision, Hold
from fleet.by_hand import Pause
from fleet.clock import clock
from fleet.console.desk import Desk
from fleet.console.rendering import Page
from fleet.declarations import Elastic, Entry
from fleet.window import Window, elastic_of, window

_SHOWN = 20


@dataclass(frozen=True)
class ElasticRow:
    """An elastic entry, its night, what it may run now, who stopped it, and the last decisions, newest first."""

    entry: Entry
    elastic: Elastic
    night: Window
    now: Allowance
    hold: Hold | None
    pause: Pause | None
    decisions: list[Decision]

    @property
    def zone(self) -> ZoneInfo:
        """The zone that its night is written in."""
        return ZoneInfo(self.entry.tz)


def build(desk: Desk, request: Request) -> dict[str, Any]:
    elastic, now = [entry for entry in desk.app.schedule if entry.elastic is not None], clock.now()
    holds = allowance.holds(desk.broker, [entry.name for entry in elastic])
    paused = by_hand.paused(desk.broker.client, desk.broker.namespace)
    rows = [
        ElasticRow(
            entry,
            elastic_of(entry),
            window(entry, now),
            allowance.allowance(desk.broker, entry, now),
            holds.get(entry.name),
            paused.get(entry.name),
            allowance.last_decisions(desk.broker, entry.name, _SHOWN),
        )
        for entry in elastic
    ]
    return {"rows": rows, "off": allowance.switched_off(desk.broker)}


PAGE = Page("/balancer", "Balancer", "balancer.html", build)
