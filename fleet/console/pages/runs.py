"""Runs and imports, as the application shows them: what has not ended, what waits for a person, how far each came."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request

from fleet import runs
from fleet.console.desk import Desk
from fleet.console.rendering import Page
from fleet.errors import DeclarationInvalid
from fleet.runs import RunsUnreadable

_SHOWN = 50
_SHOWS = {"review": {"review": True}, "open": {"open": True}, "all": {}}


def build(desk: Desk, request: Request) -> dict[str, Any]:
    asked = request.query_params
    which = asked.get("which") if asked.get("which") in _SHOWS else "all"
    only = {**_SHOWS[which or "all"], "kind": asked.get("kind") or None, "before": _before(asked.get("before"))}
    shown: dict[str, Any] = {"standing": [], "runs": [], "unread": None, "which": which, "kind": asked.get("kind", "")}
    engine = desk.engine()
    if engine is None:
        return shown | {"unread": "this application keeps no records (FLEET_DATABASE_URL is not set)"}
    try:
        with engine.connect() as connection:
            shown["standing"] = runs.standing(connection)
            shown["runs"] = runs.latest(connection, _SHOWN, **only)
    except (RunsUnreadable, SQLAlchemyError) as error:
        shown["unread"] = str(getattr(error, "orig", None) or error).splitlines()[0]
    full = len(shown["runs"]) == _SHOWN
    return shown | {"next": shown["runs"][-1].updated_at.isoformat() if full else None}


def _before(written: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(written) if written else None
    except ValueError:
        raise DeclarationInvalid(f"before={written!r} is no instant; open the page again.") from None


PAGE = Page("/runs", "Runs and imports", "runs.html", build, live=True)
