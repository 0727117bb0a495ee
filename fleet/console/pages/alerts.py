"""Alerts: each that is open, with the figure, its threshold, since when, what it means, and what the runbook says."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from fleet import alerts, readings
from fleet.console.desk import Desk
from fleet.console.problems import of_alert
from fleet.console.rendering import Page


def build(desk: Desk, request: Request) -> dict[str, Any]:
    found, reading = alerts.open_alerts(desk.broker), readings.latest(desk.broker)
    return {
        "alerts": [(alert, of_alert(desk, alert, reading)) for alert in found],
        "reading": reading,
        "kinds": alerts.KINDS,
    }


PAGE = Page("/alerts", "Alerts", "alerts.html", build, live=True)
