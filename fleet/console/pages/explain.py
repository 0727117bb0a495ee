"""Explain: why something waits and what happens next, of a message, a run, an entry or a lane; in at most ten lines."""

from __future__ import annotations

from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request

from fleet.console.desk import Desk
from fleet.console.rendering import Page
from fleet.explain import Explanation, NothingNamed, explain

_LONGEST = 200


def build(desk: Desk, request: Request) -> dict[str, Any]:
    wanted = request.query_params.get("what", "").strip()[:_LONGEST]
    shown: dict[str, Any] = {"wanted": wanted, "found": [], "nothing": None, "unread": None}
    if not wanted:
        return shown
    try:
        return shown | {"found": _found(desk, wanted, shown)}
    except NothingNamed as error:
        return shown | {"nothing": str(error)}


def _found(desk: Desk, wanted: str, shown: dict[str, Any]) -> list[Explanation]:
    try:
        return explain(desk.app, desk.broker, wanted, desk.engine())
    except SQLAlchemyError as error:
        shown["unread"] = str(getattr(error, "orig", None) or error).splitlines()[0]
        return explain(desk.app, desk.broker, wanted)


PAGE = Page("/explain", "Explain", "explain.html", build)
