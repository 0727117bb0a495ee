"""What a real `fleet console` does with bytes from nobody: its memory stays, and its log shows nothing personal."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import psutil
import pytest

from tests.conftest import Environment
from tests.console import breaking
from tests.console.conftest import ROOT, Given
from tests.waiting import wait_until

MIB = 2**20
SPARE = 16 * MIB
CALLERS, FIELD = 16, b"&token=" + b"x" * 1_000_000  # as much as Starlette takes for one field; a login has five


@dataclass(frozen=True)
class Served:
    """A console as a process of its own that logs JSON."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its log; raises where a line is no JSON."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def url(self) -> str:
        """Where it listens, once it says so."""
        assert self.process.poll() is None, self.log.read_text()
        return wait_until(lambda: re.search(r'"url": "([^"]+)/"', self.log.read_text()), 30)[1]

    def rss(self) -> int:
        """Its resident memory in bytes."""
        return int(psutil.Process(self.process.pid).memory_info().rss)


@pytest.fixture
def serve(environment: Environment, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start a console by the words before its own; it is ended afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **settings: str) -> Served:
        log = tmp_path / f"console-{len(started)}.log"
        command = [sys.executable, "-m", *words, "--app", str(ROOT), "console", "--port", "0"]
        with log.open("wb") as file:
            given = {**os.environ, "FLEET_LOG_FORMAT": "json", **settings}
            started.append(subprocess.Popen(command, env=given, stderr=file, cwd=ROOT))
        return Served(started[-1], log)

    yield start
    for process in started:
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize(
    "told",
    [("Content-Length: 10", "Transfer-Encoding: chunked"), ("Content-Length: 000000000999999999",)],
    ids=["chunks beside a length", "zeros before a length"],
)
def test_a_form_that_hides_how_long_it_is_is_refused_and_fills_no_memory(
    serve: Callable[..., Served], given: Given, told: tuple[str, ...]
) -> None:
    console = serve("fleet", FLEET_CONSOLE_TOKENS=given.lines)
    where = urlsplit(console.url())
    assert urllib.request.urlopen(f"{console.url()}/login").status == 200  # what a first page loads is no flood's
    before = console.rss()
    head = [f"POST /login HTTP/1.1\r\nHost: {where.netloc}", "Content-Type: application/x-www-form-urlencoded", *told]
    part = b"%x\r\n%b\r\n" % (len(FIELD), FIELD) if len(told) > 1 else FIELD
    with ExitStack() as all_at_once:
        callers = [all_at_once.enter_context(connected(where)) for _ in range(CALLERS)]
        for caller in callers:
            caller.sendall("\r\n".join([*head, "", ""]).encode())
            with suppress(OSError):  # it may close, or read no more
                caller.sendall(part * 4)  # and the form goes on
        grown = console.rss() - before
        assert (grown // SPARE, {answer(caller) for caller in callers}) == (0, {b"HTTP/1.1 413"}), (
            f"{grown:,} bytes more"
        )


def connected(where: SplitResult) -> socket.socket:
    return socket.create_connection((where.hostname, where.port), timeout=5)


def answer(caller: socket.socket) -> bytes:
    """The beginning of an answer; nothing where the server waits for more of the form."""
    with suppress(TimeoutError):
        return caller.recv(4096)[:12]
    return b""


def test_a_page_that_raises_is_one_line_of_json_without_what_is_personal(serve: Callable[..., Served]) -> None:
    console = serve("tests.console.breaking")
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(f"{console.url()}{breaking.PATH}")
    assert raised.value.code == 500
    (line,) = wait_until(lambda: [line for line in console.lines if line["level"] == "error"])
    assert line["logger"] == "uvicorn.error" and "ValueError: no account" in line["exception"]
    said = console.log.read_text()
    assert breaking.IBAN not in said and breaking.MAIL not in said
