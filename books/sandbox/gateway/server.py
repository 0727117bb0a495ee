"""Answers for the sandbox's authority (`/authority/v1/filings`) and payment gateway (`/payments/v1/charges`).

`POST` with an Idempotency-Key takes a thing once: the same key and body get the first result again, the same key with
another body is refused (422). `GET …?key=` says whether a key was received. A card whose `method` begins with
`pm_declined` is refused (402), and that is a result like any other. Each request leaves one JSON line in the journal
before anything is answered; `taken` is true in the line of the request that filed or charged, and `reference` is what
for: two such lines with one reference are something done twice, whatever their keys.

Not guaranteed: that the sender of what is in the journal knows of it; that is what the faults are for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_args

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from books.sandbox.gateway.weather import Act, Fault, Outlook, Weather
from books.sandbox.serving import Journal
from fleet.clock import clock

DECLINED_METHODS = "pm_declined"
SIDES = {"filings": "/authority/v1/filings", "charges": "/payments/v1/charges"}
_STATUS = {"received": 201, "succeeded": 201, "declined": 402}


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a key, for good: its id at the other side, and received, succeeded or declined."""

    id: str
    outcome: str
    digest: str

    @property
    def body(self) -> dict[str, Any]:
        error = {"error": {"code": "card_declined"}} if self.outcome == "declined" else {}
        return {"id": self.id, "status": self.outcome, **error}


Results = dict[tuple[str, str], Result]


def taken_before(log: Path | None) -> Results:
    """Side and key -> result, as a log of an earlier start tells."""
    if log is None or not log.exists():
        return {}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return {
        (line["side"], line["key"]): Result(line["id"], line["outcome"], line["digest"]) for line in lines if line["id"]
    }


class Gateway:
    """The state behind the endpoints."""

    def __init__(self, key: str, weather: Weather, journal: Journal, results: Results) -> None:
        self._authorization, self._weather, self._journal = f"Bearer {key}", weather, journal
        self._results = results

    def app(self) -> ASGIApp:
        """Both sides' routes, and the one by which a test asks for faults."""
        routes = [Route(path, self._sent_to(side), methods=["POST"]) for side, path in SIDES.items()]
        routes += [Route(path, self._asked_of(side)) for side, path in SIDES.items()]
        return _Droppable(Starlette(routes=[*routes, Route("/sandbox/script", self._script, methods=["POST"])]))

    async def _script(self, request: Request) -> Response:
        """`{"send": ["silent", null], "ask": ["away"]}`: what the next requests meet."""
        for act, faults in (await request.json()).items():
            assert act in get_args(Act)
            self._weather.script(act, [None if fault is None else Fault(fault) for fault in faults])
        return _json({})

    def _sent_to(self, side: str) -> Callable[[Request], Awaitable[Response]]:
        async def sent(request: Request) -> Response:
            key = request.headers.get("idempotency-key", "")
            try:
                body = await request.body()
            except ClientDisconnect:  # its sender died half-way; there is nobody to answer
                return _error(400, "body_incomplete")
            wrong = self._wrong(request, key) or _unreadable(side, body)
            if wrong is not None:
                self._line(side, "send", key, wrong.status_code)
                return wrong
            return await self._answer(request, side, key, json.loads(body))

        return sent

    def _asked_of(self, side: str) -> Callable[[Request], Awaitable[Response]]:
        async def asked(request: Request) -> Response:
            key = request.query_params.get("key", "")
            wrong = self._wrong(request, key)
            if wrong is not None:
                self._line(side, "ask", key, wrong.status_code)
                return wrong
            outlook = self._weather.outlook("ask", key)
            result = self._results.get((side, key))
            status = 404 if result is None else 200
            self._line(side, "ask", key, None if outlook.fault is Fault.DROPPED else status, outlook=outlook)
            await _pass(outlook)
            answer = _error(404, "unknown_key") if result is None else _json(result.body)
            return await self._faulty(request, outlook) or answer

        return asked

    def _wrong(self, request: Request, key: str) -> Response | None:
        if request.headers.get("authorization") != self._authorization:
            return _error(401, "wrong_credentials")
        return None if key else _error(400, "idempotency_key_missing")

    async def _answer(self, request: Request, side: str, key: str, body: dict[str, Any]) -> Response:
        digest = blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=8).hexdigest()
        known = self._results.get((side, key))
        if known is not None and known.digest != digest:
            self._line(side, "send", key, 422, body=body)
            return _error(422, "idempotency_key_reused")
        outlook = self._weather.outlook("send", key)
        if outlook.fault in (Fault.DROPPED, Fault.AWAY, Fault.LIMITED):
            status = {Fault.DROPPED: None, Fault.AWAY: 503, Fault.LIMITED: 429}[outlook.fault]
            self._line(side, "send", key, status, body=body, outlook=outlook)
            return await self._faulty(request, outlook) or _limited(outlook)
        result = known or self._take(side, key, digest, body)
        status = 200 if known and known.outcome != "declined" else _STATUS[result.outcome]
        answered = {Fault.SILENT: None, Fault.FAILED: 500}.get(outlook.fault, status) if outlook.fault else status
        self._line(side, "send", key, answered, body=body, outlook=outlook, result=None if known else result)
        await _pass(outlook)
        return await self._faulty(request, outlook) or _json(result.body, status)

    def _take(self, side: str, key: str, digest: str, body: dict[str, Any]) -> Result:
        declined = side == "charges" and body["method"].startswith(DECLINED_METHODS)
        outcome = "declined" if declined else {"filings": "received", "charges": "succeeded"}[side]
        result = Result(f"{side[:2]}_{blake2b(key.encode(), digest_size=8).hexdigest()}", outcome, digest)
        self._results[side, key] = result
        return result

    async def _faulty(self, request: Request, outlook: Outlook) -> Response | None:
        """The answer of a fault, if it has one of its own: none at all, a failure, or none before it is late."""
        if outlook.fault in (Fault.DROPPED, Fault.SILENT):
            request.scope["drop"]()
            await asyncio.sleep(0)
        if outlook.fault in (Fault.DROPPED, Fault.SILENT, Fault.FAILED):
            return _error(500, "internal")
        if outlook.fault is Fault.LATE:
            await asyncio.sleep(clock.to_real(self._weather.late).total_seconds())
        return _error(503, "unavailable") if outlook.fault is Fault.AWAY else None

    def _line(
        self,
        side: str,
        act: Act,
        key: str,
        status: int | None,
        *,
        body: dict[str, Any] | None = None,
        outlook: Outlook | None = None,
        result: Result | None = None,
    ) -> None:
        """Of a request; `status` is None where nothing is answered, `id` is there where this request decided a key."""
        self._journal.line(
            side=side,
            act=act,
            key=key,
            status=status,
            reference=body["reference"] if body else None,
            amount_cents=body.get("amount_cents") if body else None,
            taken=result is not None and result.outcome != "declined",
            id=result.id if result else None,
            outcome=result.outcome if result else None,
            digest=result.digest if result else None,
            attempt=outlook.attempt if outlook else None,
            fault=outlook.fault if outlook else None,
        )


class _Droppable:
    """Lets an endpoint drop its connection without an answer, which ASGI has no word for."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["drop"] = send.__self__.transport.abort  # type: ignore[attr-defined]  # uvicorn's, of this connection
        await self._app(scope, receive, send)


async def _pass(outlook: Outlook) -> None:
    await asyncio.sleep(clock.to_real(outlook.latency).total_seconds())


def _unreadable(side: str, body: bytes) -> Response | None:
    """The refusal of a body that is not what this side takes."""
    try:
        sent = json.loads(body)
    except ValueError:
        return _error(400, "no_json")
    if not isinstance(sent, dict) or not isinstance(sent.get("reference"), str):
        return _error(400, "reference_missing")
    if side == "charges" and not (
        isinstance(sent.get("method"), str) and isinstance(amount := sent.get("amount_cents"), int) and amount > 0
    ):
        return _error(400, "amount_invalid")
    return None


def _limited(outlook: Outlook) -> Response:
    return _error(429, "too_many_requests", {"retry-after": str(int(outlook.wait.total_seconds()))})


def _error(status: int, code: str, headers: dict[str, str] | None = None) -> Response:
    return _json({"error": {"code": code}}, status, headers)


def _json(body: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(body).encode(), status, headers, media_type="application/json")
