"""Runbook: the application's own `docs/when-things-go-wrong.md`, with a place for every alert."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from fleet.console.desk import Desk
from fleet.console.rendering import Page


def build(desk: Desk, request: Request) -> dict[str, Any]:
    return {"text": desk.runbook.html() if desk.runbook.text else None}


PAGE = Page("/runbook", "Runbook", "runbook.html", build)
