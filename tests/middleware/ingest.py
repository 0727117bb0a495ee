"""What stands for Sentry: a server that keeps what is posted to it."""

from __future__ import annotations

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Ingest:
    """A server that keeps the envelopes posted to it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.slow = threading.Event()
        bodies, slow = self.bodies, self.slow

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if slow.is_set():
                    threading.Event().wait(0.5)
                bodies.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.dsn = f"http://key@127.0.0.1:{self._server.server_port}/1"

    def events(self) -> list[dict[str, Any]]:
        return self._items("event")

    def check_ins(self) -> list[dict[str, Any]]:
        return self._items("check_in")

    def transactions(self) -> list[dict[str, Any]]:
        return self._items("transaction")

    def _items(self, kind: str) -> list[dict[str, Any]]:
        found = []
        for body in self.bodies:
            _, *items = body.split(b"\n")
            for header, payload in zip(items[::2], items[1::2], strict=False):
                if json.loads(header).get("type") == kind:
                    found.append(json.loads(payload))
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
