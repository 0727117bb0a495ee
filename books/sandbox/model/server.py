"""Answers for the sandbox's model: one process, one event loop, at most ten answers in the making at once.

Further requests wait in the order they came. Each request for a completion leaves one JSON line in the journal, written
before the answer is sent: `latency` is what the model took, `queued` what the request waited before, both in night
seconds. A limit answers at once; it takes no place.

Not guaranteed: that what is in the journal reached the client; either may have died on the way.
"""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from hashlib import blake2b
from itertools import count
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from books.sandbox.model import reading, replies
from books.sandbox.model.reading import Asked, NotUnderstood, tokens
from books.sandbox.model.replies import Reply
from books.sandbox.model.weather import Fault, Outlook, Weather
from books.sandbox.serving import Journal
from fleet.clock import clock

AT_ONCE = 10
MODEL = "sandbox-1"


class Model:
    """The state behind the endpoints."""

    def __init__(self, key: str, weather: Weather, journal: Journal) -> None:
        self._authorization, self._weather, self._journal = f"Bearer {key}", weather, journal
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._numbers = count(1)

    def app(self) -> Starlette:
        """The two routes of the API that the bookkeeping and its checks use."""
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._completions, methods=["POST"]),
                Route("/v1/models", self._models),
            ],
        )

    async def _models(self, request: Request) -> Response:
        if request.headers.get("authorization") != self._authorization:
            return _wrong_key()
        model = {"id": MODEL, "object": "model", "created": 1_767_225_600, "owned_by": "sandbox"}
        return _json({"object": "list", "data": [model]})

    async def _completions(self, request: Request) -> Response:
        body = await request.body()
        run = request.headers.get("x-run", "")
        # Without a step, requests with the same words are the same step.
        step = request.headers.get("x-step", "") or blake2b(body, digest_size=8).hexdigest()
        if request.headers.get("authorization") != self._authorization:
            self._line(run, step, 401, fault="key")
            return _wrong_key()
        try:
            asked = reading.read(body)
        except NotUnderstood as error:
            self._line(run, step, 400, fault="request")
            return _error(400, str(error), "invalid_request_error", None)
        return await self._answered(asked, run, step)

    async def _answered(self, asked: Asked, run: str, step: str) -> Response:
        outlook = self._weather.outlook(run, step, has_json=replies.has_json(asked, self._weather.of_run(run)))
        came = clock.now()
        if outlook.fault is Fault.LIMIT:
            self._line(run, step, 429, asked=asked, outlook=outlook)
            return _limited(outlook)
        async with self._slots:
            began = clock.now()
            await asyncio.sleep(clock.to_real(outlook.latency).total_seconds())
            if outlook.fault is Fault.FAILURE:
                self._line(run, step, 500, asked=asked, outlook=outlook, came=came, began=began)
                return _error(500, "The server had an error while processing your request.", "server_error", None)
            reply = replies.reply(asked, self._weather.of_run(run))
            if outlook.fault is Fault.MALFORMED:
                reply = reply.broken_off()
            written = tokens(reply.written)
            self._line(run, step, 200, asked=asked, outlook=outlook, came=came, began=began, written=written)
        return _json(_completion(next(self._numbers), asked, reply, written))

    def _line(
        self,
        run: str,
        step: str,
        status: int,
        *,
        fault: str | None = None,
        asked: Asked | None = None,
        outlook: Outlook | None = None,
        came: datetime | None = None,
        began: datetime | None = None,
        written: int = 0,
    ) -> None:
        now = clock.now()
        self._journal.line(
            run=run,
            step=step,
            attempt=outlook.attempt if outlook else None,
            kind=asked.kind if asked else None,
            status=status,
            latency=round((now - began).total_seconds(), 3) if began else 0.0,
            queued=round((began - came).total_seconds(), 3) if began and came else 0.0,
            prompt_tokens=asked.prompt_tokens if asked and began else 0,
            completion_tokens=written,
            fault=outlook.fault if outlook else fault,
        )


def _completion(number: int, asked: Asked, reply: Reply, written: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.content, "refusal": None}
    if reply.calls:
        message["tool_calls"] = [
            {"id": f"call_{number}_{place}", "type": "function", "function": {"name": name, "arguments": given}}
            for place, (name, given) in enumerate(reply.calls)
        ]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": "tool_calls" if reply.calls else "stop",
    }
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(clock.now().timestamp()),
        "model": asked.model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": asked.prompt_tokens,
            "completion_tokens": written,
            "total_tokens": asked.prompt_tokens + written,
        },
    }


def _limited(outlook: Outlook) -> Response:
    seconds = int(outlook.wait.total_seconds())
    said = f"Rate limit reached for requests. Please try again in {seconds}s."
    return _error(429, said, "requests", "rate_limit_exceeded", {"retry-after": str(seconds)})


def _wrong_key() -> Response:
    return _error(401, "Incorrect API key provided.", "invalid_request_error", "invalid_api_key")


def _error(status: int, said: str, kind: str, code: str | None, headers: dict[str, str] | None = None) -> Response:
    return _json({"error": {"message": said, "type": kind, "param": None, "code": code}}, status, headers)


def _json(body: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(body, ensure_ascii=False).encode(), status, headers, media_type="application/json")
