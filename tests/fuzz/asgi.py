"""Asks an ASGI application as a server would ask it for a client that keeps to no rules."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from starlette.requests import ClientDisconnect

LIMIT_SECONDS = 10.0
"""What an answer may take at most: a stream whose client left has ended by then."""


@dataclass(frozen=True)
class Ask:
    """One request; `leaves_after` is how many parts of the answer its client takes before it is gone."""

    method: str
    raw_path: bytes
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: tuple[bytes, ...] = ()
    leaves_after: int | None = None
    spec: str = "2.3"


@dataclass
class Answer:
    """What came back."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def ask(app: Any, one: Ask, within: asyncio.Runner) -> Answer:
    """The answer; raises what the application raises, but for a client that left.

    All requests of one application go through one event loop, as its server's do.
    """
    answer = Answer()
    with suppress(_Left, ClientDisconnect):  # what a framework makes of it
        within.run(_within_the_limit(app, one, answer))
    return answer


async def _within_the_limit(app: Any, one: Ask, answer: Answer) -> None:
    await asyncio.wait_for(_converse(app, one, answer), LIMIT_SECONDS)


class _Left(OSError):
    """Raised when something is sent to a client that is gone."""


async def _converse(app: Any, one: Ask, answer: Answer) -> None:
    parts, sent = list(one.body), [0]
    gone = asyncio.Event()
    told = [False]

    async def receive() -> dict[str, Any]:
        if parts or not told[0]:
            told[0] = True
            part = parts.pop(0) if parts else b""
            return {"type": "http.request", "body": part, "more_body": bool(parts)}
        if one.leaves_after is not None:
            await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if one.leaves_after is not None and sent[0] >= one.leaves_after:
            gone.set()
            if one.spec >= "2.4":
                raise _Left
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")
        sent[0] += 1
        if one.leaves_after is not None and sent[0] >= one.leaves_after:
            gone.set()

    await app(_scope(one), receive, send)


def _scope(one: Ask) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": one.spec},
        "http_version": "1.1",
        "method": one.method,
        "scheme": "http",
        "path": unquote(one.raw_path.decode("ascii", "ignore")),
        "raw_path": one.raw_path,
        "query_string": one.query,
        "root_path": "",
        "headers": _lower(one.headers),
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8310),
        "state": {},
    }


def _lower(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in headers]
