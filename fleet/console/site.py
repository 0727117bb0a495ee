"""The console as an ASGI application: its pages, its actions, its live parts, and what it says when something fails.

An action is a POST by who may operate, with the token of a page of the same session; it ends in a page that says what
was done. Every action goes through `_acted`, so none can be without these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import redis
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from fleet.console.actions import ACTIONS, Act
from fleet.console.desk import Desk
from fleet.console.guard import Guard
from fleet.console.live import Live
from fleet.console.login import Login
from fleet.console.pages import PAGES
from fleet.console.rendering import STATIC, Page, Renderer
from fleet.console.sessions import Visitor
from fleet.errors import FleetError, NotDeclared
from fleet.logs import get_logger
from fleet.timeline import STYLE

log = get_logger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]
_MOST_FORM_FIELDS = 50


def make_app(desk: Desk, ending: asyncio.Event | None = None) -> ASGIApp:
    """The application that answers for a desk; its streams end when `ending` is set."""
    renderer = Renderer(desk, PAGES)
    login = Login(desk, renderer)
    live = Live({page.path: page for page in PAGES if page.live}, renderer, ending or asyncio.Event())
    routes = [
        *(Route(page.path, _shown(desk, renderer, page)) for page in PAGES),
        *(Route(path, _acted(desk, renderer, act), methods=["POST"]) for path, act in ACTIONS.items()),
        Route("/login", login.show, methods=["GET"]),
        Route("/login", login.enter, methods=["POST"]),
        Route("/logout", login.leave, methods=["POST"]),
        Route("/live", live.stream),
        Route("/static/night.css", lambda request: Response(STYLE, media_type="text/css")),
        Route("/healthz", lambda request: PlainTextResponse("ok\n")),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    failed = _failures(renderer)
    return Guard(Starlette(routes=routes, exception_handlers=failed), desk.sessions)


def _shown(desk: Desk, renderer: Renderer, page: Page) -> Endpoint:
    async def show(request: Request) -> Response:
        visitor: Visitor = request.state.visitor
        said = desk.sessions.heard(request.query_params.get("said"))
        response = await run_in_threadpool(renderer.page, page, request, said=said)
        if getattr(request.state, "fresh", False):
            desk.sessions.keep(response, visitor, https=request.url.scheme == "https")
        return response

    return show


def _acted(desk: Desk, renderer: Renderer, act: Act) -> Endpoint:
    async def post(request: Request) -> Response:
        visitor: Visitor = request.state.visitor
        async with request.form(max_files=0, max_fields=_MOST_FORM_FIELDS) as form:
            given = {name: value for name, value in form.items() if isinstance(value, str)}
        if not desk.sessions.is_form_token(visitor, given.pop("form_token", "")):
            raise HTTPException(403, "This form is from another session. Open the page again, and send it from there.")
        if not visitor.operates:
            log.warning("console_denied", who=visitor.name, path=request.url.path)
            raise HTTPException(403, f"{visitor.name} may read. This needs a token with the role operate.")
        done = await run_in_threadpool(act, desk, visitor, {**given, **request.path_params})
        return RedirectResponse(desk.sessions.said(done.back, done.said), 303)

    return post


def _failures(renderer: Renderer) -> dict[Any, Any]:
    async def show(request: Request, status: int, what: str, why: str) -> Response:
        return await run_in_threadpool(
            renderer.made, "failed.html", request, status=status, title=what, what=what, why=why
        )

    async def http(request: Request, error: HTTPException) -> Response:
        what = {403: "Not allowed", 404: "There is no such page"}.get(error.status_code, "That did not work")
        return await show(request, error.status_code, what, error.detail)

    async def undeclared(request: Request, error: NotDeclared) -> Response:
        return await show(request, 404, "There is no such thing", str(error))

    async def refused(request: Request, error: FleetError) -> Response:
        return await show(request, 400, "That was not done", str(error))

    async def away(request: Request, error: redis.RedisError) -> Response:
        why = f"{error}. Lanes and beats go on trying by themselves, and say redis_back when it answers again."
        return await show(request, 503, "Redis does not answer", why)

    async def at_odds(request: Request, error: redis.RedisError) -> Response:
        return await show(request, 500, "Redis refused this", str(error))

    return {
        HTTPException: http,
        NotDeclared: undeclared,
        FleetError: refused,
        redis.RedisError: at_odds,
        redis.ConnectionError: away,
        redis.TimeoutError: away,
    }
