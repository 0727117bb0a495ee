"""Logging in with a token, and out again.

Five wrong tokens a minute from one address, and the sixth is not looked at for the rest of it. The addresses of the
last ten thousand are kept. Who came in is in the log, as is who did not, without what they gave.

Not guaranteed: one person an address; behind a proxy that is not among FLEET_CONSOLE_PROXIES all share one.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fleet.console.desk import Desk
from fleet.console.rendering import Renderer
from fleet.console.sessions import COOKIE
from fleet.console.tokens import matching
from fleet.logs import get_logger

log = get_logger(__name__)

TRIES = 5
WINDOW_SECONDS = 60.0
_MOST_ADDRESSES = 10_000


class Tries:
    """Wrong tokens by address, within the last minute."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._wrong: OrderedDict[str, list[float]] = OrderedDict()

    def left(self, address: str) -> bool:
        """Whether this address may try at all."""
        since = self._monotonic() - WINDOW_SECONDS
        recent = [at for at in self._wrong.get(address, ()) if at > since]
        if recent:
            self._wrong[address] = recent
        else:
            self._wrong.pop(address, None)
        return len(recent) < TRIES

    def wrong(self, address: str) -> None:
        """One more wrong token."""
        self._wrong.setdefault(address, []).append(self._monotonic())
        self._wrong.move_to_end(address)
        if len(self._wrong) > _MOST_ADDRESSES:
            self._wrong.popitem(last=False)


class Login:
    """The login of one console."""

    def __init__(self, desk: Desk, renderer: Renderer) -> None:
        self._desk, self._renderer = desk, renderer
        self._tries = Tries()

    async def show(self, request: Request) -> Response:
        """The form."""
        return await self._form(request, 200, None)

    async def enter(self, request: Request) -> Response:
        """Look at the token; a session and the page that was wanted, or the form again."""
        address = request.client.host if request.client else "?"
        if not self._tries.left(address):
            log.warning("console_login_throttled", address=address)
            response = await self._form(request, 429, "Too many wrong tokens. Wait a minute, then try again.")
            response.headers["Retry-After"] = str(int(WINDOW_SECONDS))
            return response
        async with request.form(max_files=0, max_fields=5) as form:
            secret, wanted = str(form.get("token", "")).strip(), str(form.get("next", "/"))
        token = matching(self._desk.tokens, secret)
        if token is None:
            self._tries.wrong(address)
            log.warning("console_login_refused", address=address)
            return await self._form(request, 401, "There is no such token.")
        log.info("console_login", who=token.name, role=token.role, address=address)
        response = RedirectResponse(_own_page(wanted), 303)
        visitor = self._desk.sessions.of_token(token)
        self._desk.sessions.keep(response, visitor, https=request.url.scheme == "https")
        return response

    async def leave(self, request: Request) -> Response:
        """End the session in this browser."""
        response = RedirectResponse("/login" if self._desk.sessions.login else "/", 303)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    async def _form(self, request: Request, status: int, wrong: str | None) -> Response:
        wanted = _own_page(request.query_params.get("next", "/"))
        return await run_in_threadpool(
            self._renderer.made, "login.html", request, status=status, title="Log in", wrong=wrong, wanted=wanted
        )


def _own_page(wanted: str) -> str:
    """A path of the console's own; never another host, which `//host` and `/\\host` would be."""
    own = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isprintable()
    return wanted if own and not wanted.startswith("/log") else "/"
