"""What stands before every page: whose request it is, where it comes from, and what the browser may do with the answer.

Without a login only requests to a loopback name are answered, so that a page elsewhere cannot reach the console by
pointing a name of its own at 127.0.0.1, and none that a proxy passed on. Whatever is no GET must come from a page of
the console's own (Origin, Sec-Fetch-Site), beside the token in its form.

A form is bounded before anybody asks who sends it: it says how long it is, by a `Content-Length` alone, and what comes
is counted besides.

Whether a path needs a login goes by the path that the router goes by too, never by an address that was put together of
what the request says of itself: its Host is anybody's to write.

Not guaranteed without a login: anything against other users of this machine; they reach loopback too.
"""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleet.console.sessions import COOKIE, Sessions

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
OPEN = ("/login", "/static/", "/healthz")
_PASSED_ON = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


_MOST_BYTES = 65_536  # of a form; a login is open to everybody, and nobody's memory is to be filled through it
_LONGEST_NUMBER = 20  # digits that a length may have, leading zeros and all
_TOO_LONG = f"A form is at most {_MOST_BYTES:,} bytes long, and says how long it is."


class Guard:
    """Wraps the application; puts the visitor into the request's state."""

    def __init__(self, app: ASGIApp, sessions: Sessions) -> None:
        self._app, self._sessions = app, sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        request = Request(scope)
        own_file = str(scope["path"]).startswith("/static/")

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-cache" if own_file else "no-store")
            await send(message)

        answer = self._refusal(request) or self._let_in(request)
        await (answer or self._app)(scope, _counted(receive) if _is_form(request) else receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        headers = request.headers
        if not request.scope["query_string"].isascii():  # which Starlette's URL would fail at
            return _refused(400, "This address holds bytes that no address may hold unescaped.")
        if not self._sessions.login:
            if _name(headers.get("host", "")) not in LOOPBACK_NAMES:
                return _refused(421, "This console asks for no login, so it answers to localhost and 127.0.0.1 only.")
            if any(name in headers for name in _PASSED_ON):
                return _refused(
                    403, "A proxy passes this on, and this console asks for no login. Give it tokens: docs/console.md."
                )
        if not _is_form(request):
            return None
        if not _own(headers):
            return _refused(403, "This request comes from another site's page.")
        return None if _is_bounded(headers) else _refused(413, _TOO_LONG)

    def _let_in(self, request: Request) -> Response | None:
        visitor = self._sessions.of_cookie(request.cookies.get(COOKIE))
        if visitor is None and not self._sessions.login:
            request.state.fresh = True
            visitor = self._sessions.local()
        request.state.visitor = visitor
        path, query = str(request.scope["path"]), request.scope["query_string"].decode()
        if visitor is not None or path.startswith(OPEN):
            return None
        if request.method != "GET" or path == "/live":
            return _refused(401, "Log in first.")
        wanted = quote(path) + (f"?{query}" if query else "")
        return RedirectResponse(f"/login?next={quote(wanted, safe='')}", 303)


def _is_form(request: Request) -> bool:
    return request.method not in ("GET", "HEAD")


def _is_bounded(headers: Headers) -> bool:
    """Whether a form says that it is short; one in chunks may go on for ever, whatever length it gives beside."""
    length = headers.get("content-length", "")
    if "transfer-encoding" in headers or not length.isdecimal() or len(length) > _LONGEST_NUMBER:
        return False
    return int(length) <= _MOST_BYTES


def _counted(receive: Receive) -> Receive:
    """What receives a form and raises a 413 behind its most bytes, for a server that takes more than was said."""
    came = 0

    async def receive_counted() -> Message:
        nonlocal came
        message = await receive()
        came += len(message.get("body", b""))
        if came > _MOST_BYTES:
            raise HTTPException(413, _TOO_LONG)
        return message

    return receive_counted


def _own(headers: Headers) -> bool:
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in (None, "same-origin"):
        return False
    return origin is None or urlsplit(origin).netloc == headers.get("host")


def _name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status)
