"""Live parts by server-sent events: what is live of a page, sent anew whenever it changed.

A part is made once for everybody who looks at the same page, at most every two seconds. A stream ends after ten minutes
and the browser opens another, which is when a session that is over ends; more than 64 at once are refused.

Not guaranteed: each change; what came and went between two looks is not sent. What fails is said in the stream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import redis
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from fleet.clock import clock
from fleet.console.rendering import Page, Renderer
from fleet.errors import FleetError

EVERY_SECONDS = 2.0
MOST_STREAMS = 64
_LASTS_SECONDS = 600.0
_KEPT = 256


class Live:
    """The streams of one console; all end when `ending` is set."""

    def __init__(self, pages: Mapping[str, Page], renderer: Renderer, ending: asyncio.Event) -> None:
        self._pages, self._renderer, self._ending = pages, renderer, ending
        self._made: dict[str, tuple[float, str]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._streams = 0

    async def stream(self, request: Request) -> Response:
        """`/live?page=/lanes`: the events of a page."""
        where = urlsplit(request.query_params.get("page", ""))
        page = self._pages.get(where.path)
        if page is None:
            return PlainTextResponse("There is nothing live at that page.\n", 404)
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("Too many pages are open; this one stays as it is.\n", 503)
        seen = Request({**request.scope, "path": where.path, "query_string": where.query.encode()})
        return StreamingResponse(self._events(page, seen), media_type="text/event-stream")

    async def _events(self, page: Page, request: Request) -> AsyncIterator[str]:
        self._streams += 1
        ends, last = time.monotonic() + _LASTS_SECONDS, ""
        try:
            while time.monotonic() < ends and not self._ending.is_set():
                try:
                    made = await self._fragment(page, request)
                    event = "part"
                except (redis.RedisError, FleetError) as error:
                    made, event = str(error) or type(error).__name__, "failed"
                yield _event("clock", f"{clock.now():%Y-%m-%d %H:%M:%S}")
                if made != last:
                    yield _event(event, made)
                last = made
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), EVERY_SECONDS)
        finally:
            self._streams -= 1

    async def _fragment(self, page: Page, request: Request) -> str:
        key = f"{page.path}?{request.url.query}"
        async with self._locks.setdefault(key, asyncio.Lock()):
            made = self._made.get(key)
            if made is None or time.monotonic() - made[0] > EVERY_SECONDS / 2:
                made = (time.monotonic(), await run_in_threadpool(self._renderer.fragment, page, request))
                self._made[key] = made
        if len(self._made) > _KEPT:
            self._made.clear()
            self._locks.clear()
        return made[1]


def _event(name: str, text: str) -> str:
    lines = "".join(f"data: {line}\n" for line in text.splitlines() or [""])
    return f"event: {name}\n{lines}\n"
