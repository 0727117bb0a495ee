"""Answers for the sandbox's bank aggregator: one process, one event loop, at most 50 requests in the making at once.

Each request under `/api/` leaves one JSON line in the journal, written before the answer is sent: what a client got
is in it. `GET /sandbox/truth` tells everything that was served so far, for the night's report.

Not guaranteed: that what is in the journal reached the client; either may have died on the way.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from books.sandbox.bank import refused
from books.sandbox.bank.bodies import account_body, balances_body, requisition_body
from books.sandbox.bank.connections import SeededAccount, expired_requisition, seed_connections
from books.sandbox.bank.ledger import BERLIN, Ledger
from books.sandbox.bank.refused import Refused
from books.sandbox.bank.tokens import Tokens
from books.sandbox.bank.weather import Weather
from books.sandbox.serving import Journal
from fleet.clock import clock

AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer and what the journal says of it."""

    body: bytes
    rows: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    fault: str | None = None


class Aggregator:
    """The state behind the endpoints."""

    def __init__(self, seed: int, accounts: int, origin: date, journal: Journal) -> None:
        self._seed, self._origin, self._journal = seed, origin, journal
        self._connections = seed_connections(seed, accounts)
        self._accounts = {
            account.id: (account, connection) for connection in self._connections for account in connection.accounts
        }
        self._expired = expired_requisition(self._connections)
        self._weather = Weather(seed, self._connections)
        self._tokens = Tokens()
        self._ledgers: dict[str, Ledger] = {}
        self._served_booked: dict[str, set[str]] = {account: set() for account in self._accounts}
        self._served_pending: dict[str, set[str]] = {account: set() for account in self._accounts}
        self._faults: Counter[str] = Counter()
        self._slots = asyncio.Semaphore(AT_ONCE)

    def app(self) -> Starlette:
        """The routes: the API's own, and the truth."""
        api, one = "/api/v2", "/api/v2/accounts/{account}"
        return Starlette(
            routes=[
                Route(f"{api}/token/new/", self._endpoint(self._token_new), methods=["POST"]),
                Route(f"{api}/token/refresh/", self._endpoint(self._token_refresh), methods=["POST"]),
                Route(f"{api}/requisitions/", self._endpoint(self._requisitions)),
                Route(f"{one}/", self._endpoint(self._account)),
                Route(f"{one}/balances/", self._endpoint(self._balances)),
                Route(f"{one}/transactions/", self._endpoint(self._transactions)),
                Route("/sandbox/truth", self._truth),
            ],
        )

    def _endpoint(self, make: Callable[[Request], Awaitable[Answer]]) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that turns what `make` returns or refuses into a response and a line of the journal."""

        async def endpoint(request: Request) -> Response:
            started = clock.now()
            try:
                answer, status = await make(request), 200
            except Refused as error:
                answer = Answer(json.dumps(error.body).encode(), headers=error.headers, fault=error.fault)
                status = error.status
            if answer.fault:
                self._faults[answer.fault] += 1
            self._journal.line(
                method=request.method,
                path=request.url.path,
                query=request.url.query,
                account=request.path_params.get("account"),
                status=status,
                rows=answer.rows,
                latency=round((clock.now() - started).total_seconds(), 3),
                fault=answer.fault,
            )
            return Response(answer.body, status, answer.headers, media_type="application/json")

        return endpoint

    async def _token_new(self, request: Request) -> Answer:
        body = await _json_body(request)
        issued = self._tokens.new(body.get("secret_id"), body.get("secret_key"), clock.now())
        if issued is None:
            raise refused.credentials()
        return Answer(json.dumps(issued).encode())

    async def _token_refresh(self, request: Request) -> Answer:
        issued = self._tokens.refreshed((await _json_body(request)).get("refresh"), clock.now())
        if issued is None:
            raise refused.invalid_token()
        return Answer(json.dumps(issued).encode())

    async def _requisitions(self, request: Request) -> Answer:
        await self._travel(request, "requisitions")
        limit, offset, count = _number(request, "limit", 100), _number(request, "offset", 0), len(self._connections)
        results = [
            requisition_body(connection, self._origin, expired=connection is self._expired)
            for connection in self._connections[offset : offset + limit]
        ]
        base = str(request.url.replace(query=""))
        body = {
            "count": count,
            "next": f"{base}?limit={limit}&offset={offset + limit}" if offset + limit < count else None,
            "previous": f"{base}?limit={limit}&offset={max(0, offset - limit)}" if offset else None,
            "results": results,
        }
        return Answer(json.dumps(body).encode(), len(results))

    async def _account(self, request: Request) -> Answer:
        """The master record; it is answered also where the consent expired."""
        account = self._known(request)
        await self._travel(request, "account")
        institution = self._accounts[account.id][1].institution
        return Answer(account_body(account, institution, self._origin, expired=account.id in self._weather.expired), 1)

    async def _balances(self, request: Request) -> Answer:
        account = self._known(request)
        await self._travel(request, "balances")
        headers = self._admit(account, "balances")
        now = clock.now()
        body = balances_body(*self._ledger(account).balances(now), account.currency, now.astimezone(BERLIN).date())
        return Answer(body, 2, headers)

    async def _transactions(self, request: Request) -> Answer:
        account = self._known(request)
        since, until = _span(request)
        await self._travel(request, "transactions")
        headers = self._admit(account, "transactions")
        now = clock.now()
        shown = self._ledger(account).shown(now, since, until)
        body = shown.body(now)
        if self._weather.malformed(account.id):
            return Answer(body[: len(body) // 2], 0, headers, fault="malformed")
        self._served_booked[account.id].update(entry.id for entry in shown.booked)
        self._served_pending[account.id].update(entry.id for entry in shown.pending)
        return Answer(body, len(shown.booked) + len(shown.pending), headers)

    def _known(self, request: Request) -> SeededAccount:
        self._authorize(request)
        account_id = request.path_params["account"]
        if account_id not in self._accounts:
            raise refused.unknown_account(account_id)
        return self._accounts[account_id][0]

    def _authorize(self, request: Request) -> None:
        if not self._tokens.valid(request.headers.get("authorization"), clock.now()):
            raise refused.invalid_token()

    async def _travel(self, request: Request, scope: str) -> None:
        """Wait as long as the bank takes, in one of the slots; some requests fail on the way, once."""
        self._authorize(request)
        key = f"{request.url.path}?{request.url.query}"
        async with self._slots:
            latency = self._weather.latency(scope, key, clock.now())
            await asyncio.sleep(clock.to_real(latency).total_seconds())
        status = self._weather.failure(key)
        if status is not None:
            raise refused.unavailable(status)

    def _admit(self, account: SeededAccount, scope: str) -> dict[str, str]:
        """Count a call against the account's limits; returns the headers that tell what is left."""
        now = clock.now()
        if account.id in self._weather.expired:
            raise refused.consent_expired(self._expired.requisition_id, self._origin)
        short = self._weather.short_limit(account.id, now) if scope == "transactions" else None
        if short is not None:
            raise refused.rate_limited(short)
        quota = self._weather.quota(account.id, scope, now)
        if quota.remaining == 0:
            raise refused.rate_limited(quota.resets - now)
        quota.remaining -= 1
        return refused.limit_headers(quota, now)

    def _ledger(self, account: SeededAccount) -> Ledger:
        ledger = self._ledgers.get(account.id)
        if ledger is None:
            institution = self._accounts[account.id][1].institution
            ledger = self._ledgers[account.id] = Ledger(self._seed, account, institution, self._origin)
        return ledger

    async def _truth(self, _request: Request) -> Response:
        body = {
            "seed": self._seed,
            "origin": self._origin.isoformat(),
            "now": clock.now().isoformat(),
            "faults": dict(self._faults),
            "accounts": [self._account_truth(account_id, clock.now()) for account_id in self._accounts],
        }
        return Response(json.dumps(body), media_type="application/json")

    def _account_truth(self, account_id: str, now: datetime) -> dict[str, Any]:
        """`served.pending`: ids never served as booked. `now`: what a request for all days would bring."""
        account, connection = self._accounts[account_id]
        shown = self._ledger(account).shown(now, date.min, date.max)
        booked, pending = self._served_booked[account_id], self._served_pending[account_id]
        return {
            "id": account_id,
            "requisition_id": connection.requisition_id,
            "institution": connection.institution,
            "connected": account_id not in self._weather.expired,
            "served": {"booked": sorted(booked), "pending": sorted(pending - booked)},
            "now": {"booked": [e.id for e in shown.booked], "pending": [e.id for e in shown.pending]},
        }


async def _json_body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise refused.parameter("body", "what was sent", "a JSON object")
    return body


def _number(request: Request, name: str, default: int) -> int:
    value = request.query_params.get(name, str(default))
    if not value.isascii() or not value.isdigit():
        raise refused.parameter(name, value, "a number")
    return int(value)


def _span(request: Request) -> tuple[date, date]:
    """The days asked for; by default everything up to today."""
    today = clock.now().astimezone(BERLIN).date()
    days = []
    for name, default in (("date_from", date.min), ("date_to", today)):
        value = request.query_params.get(name)
        try:
            days.append(default if value is None else date.fromisoformat(value))
        except ValueError:
            raise refused.parameter(name, str(value), "a date in the form YYYY-MM-DD") from None
    since, until = days
    if until > today:
        raise refused.parameter("date_to", str(until), f"no later than today, {today}")
    if since > until:
        raise refused.parameter("date_from", str(since), f"no later than date_to, {until}")
    return since, until
