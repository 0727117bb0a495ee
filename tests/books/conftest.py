"""The world outside for the bookkeeping's tests, found by settings.

Bank and model are one scripted HTTP server; authority and payment gateway are the sandbox's, in a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.books.gateway import SandboxGateway, sandbox_gateway
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]

Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]
"""Status, body (as bytes where it is no JSON), and more headers."""


class ScriptedWorld(ThreadingHTTPServer):
    """Issues the bank's tokens by itself and answers everything else with `reply(path, query, body)`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply: Callable[[str, dict[str, str], Any], Answer] = lambda *_: (404, {"detail": "not scripted"})
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.encodings: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is what some tests are about; anything else fails them by itself."""

    def count(self, part: str) -> int:
        """How many requests had this in their path."""
        return sum(1 for path, _, _ in self.asked if part in path)

    def shows(self, *pages: dict[str, Any]) -> None:
        """The bank answers the first window with the first page, and so on; windows beyond are empty."""
        left = list(pages)
        empty = {"booked": [], "pending": []}
        self.reply = lambda *_: (200, {"transactions": left.pop(0) if left else empty})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: the second would wait 40 ms for an ACK
    server: ScriptedWorld

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.loads(raw) if raw else {}
        if "/token/" in parts.path:
            status, answer = 200, {"access": "a", "access_expires": 86_400, "refresh": "r", "refresh_expires": 86_400}
            more: list[dict[str, str]] = []
        else:
            self.server.asked.append((parts.path, query, body))
            self.server.encodings.append(self.headers.get("accept-encoding"))
            status, answer, *more = self.server.reply(parts.path, query, body)
        sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        for name, value in more[0].items() if more else ():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing to the terminal."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedWorld]:
    """Bank and model of this process are one scripted server."""
    from books import clients
    from config.settings import settings

    with ScriptedWorld() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("BOOKS_BANK_URL", server.url)
        monkeypatch.setenv("BOOKS_MODEL_URL", f"{server.url}/v1")
        monkeypatch.setenv("BOOKS_MODEL_KEY", "a key")
        settings.cache_clear()
        clients.forget()
        yield server
        clients.forget()
        settings.cache_clear()
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def gateway_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxGateway]:
    folder: Path = tmp_path_factory.mktemp("gateway")
    with sandbox_gateway(folder) as running:
        yield running


@pytest.fixture
def gateway(gateway_process: SandboxGateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[SandboxGateway]:
    """This process's authority and payment gateway, without faults but those that the test asks for."""
    from books import clients
    from config.settings import settings

    for name, value in gateway_process.settings().items():
        monkeypatch.setenv(name, value)
    settings.cache_clear()
    clients.forget()
    gateway_process.script(send=[], ask=[])
    yield gateway_process
    clients.forget()
    settings.cache_clear()


@pytest.fixture(scope="module")
def mail_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The sandbox's mail server; its URL stands beside its log."""
    folder = tmp_path_factory.mktemp("mail")
    ready, log = folder / "mail.url", folder / "mail.jsonl"
    command = [sys.executable, "-m", "books.sandbox.mail", "--ready-file", str(ready), "--log", str(log)]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ})
    wait_until(ready.exists, 20)
    log.touch()
    yield log
    process.terminate()
    process.wait(5)
