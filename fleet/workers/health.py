"""The small HTTP server of a supervisor or a beat: `/metrics`, `/healthz` (the process), `/readyz` (its work).

A check answers None where all is well (200, `ok`), else a sentence on what is wrong (503). A connection is a thread,
cut 10 s after it began, and the oldest is cut when there are 64: a client that dawdles delays no other.

Not guaranteed: who asks; there is no TLS and no password, so it listens on loopback unless told otherwise. A check that
raises is a 503 that says so; an address that cannot be had is `AddressUnusable` at the start.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from fleet.clock import clock
from fleet.errors import AddressUnusable
from fleet.logs import get_logger

log = get_logger(__name__)

Check = Callable[[], str | None]

_CONNECTION_SECONDS = 10.0  # what a scrape gets by Prometheus's own default
_MOST_CONNECTIONS = 64


def serve(host: str, port: int, *, scrape: WSGIApplication, healthy: Check, ready: Check) -> str:
    """Serve until the process ends, from threads of its own; returns the address of `/metrics`.

    Port 0 is a free one. Raises `AddressUnusable`.
    """
    pages = {"/metrics": scrape, "/healthz": _answer(healthy), "/readyz": _answer(ready)}

    def route(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        page = pages.get(environ["PATH_INFO"])
        if page is not None:
            return page(environ, start_response)
        return _text(start_response, "404 Not Found", f"There is {', '.join(pages)} here.")

    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        server = _Server(family, address, route)
    except OSError as error:
        raise AddressUnusable(host, port, error) from None
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"


def _answer(check: Check) -> WSGIApplication:
    def page(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            wrong = check()
        except Exception as error:
            log.warning("health_check_broke", path=environ["PATH_INFO"], error=repr(error))
            wrong = f"the check itself failed: {error!r}"
        return _text(start_response, "200 OK" if wrong is None else "503 Service Unavailable", wrong or "ok")

    return page


def _text(start_response: StartResponse, status: str, text: str) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
    return [f"{text}\n".encode(errors="replace")]


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """A probe every few seconds is no news."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = _MOST_CONNECTIONS  # 5 by default: a sixth client at once would wait a second for its SYN

    def __init__(self, family: int, address: Any, app: WSGIApplication) -> None:
        self.address_family = family
        self._open: dict[socket.socket, float] = {}  # connection -> when it began, oldest first
        super().__init__(address, _Silent)
        self.set_app(app)

    def server_bind(self) -> None:
        """Without `HTTPServer`'s question to the DNS for this host's name, which can take a minute."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._open) >= _MOST_CONNECTIONS:
            for oldest in list(self._open)[:1]:
                self._cut(oldest)
        self._open[request] = clock.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """`serve_forever` calls this twice a second and after each connection."""
        late = clock.monotonic() - _CONNECTION_SECONDS
        for request, since in list(self._open.items()):
            if since < late:
                self._cut(request)

    def _cut(self, request: socket.socket) -> None:
        self._open.pop(request, None)
        with suppress(OSError):  # it ended meanwhile
            request.shutdown(socket.SHUT_RDWR)  # its thread wakes, and closes it

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("http_connection_broke", error=repr(sys.exc_info()[1]))
