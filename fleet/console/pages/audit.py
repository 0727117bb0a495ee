"""Audit: who did what, why, and how it was before and after; from the console and the command line."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from starlette.requests import Request

from fleet import audit
from fleet.console.desk import Desk
from fleet.console.rendering import Page
from fleet.errors import DeclarationInvalid

_SHOWN = 50


def build(desk: Desk, request: Request) -> dict[str, Any]:
    written = request.query_params.get("before")
    try:
        before = datetime.fromisoformat(written) if written else None
    except ValueError:
        raise DeclarationInvalid(f"before={written!r} is no instant; open the page again.") from None
    rows = audit.read(desk.broker, _SHOWN, before=before)
    return {"rows": rows, "next": rows[-1].at.isoformat() if len(rows) == _SHOWN else None}


PAGE = Page("/audit", "Audit", "audit.html", build, live=True)
