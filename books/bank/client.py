"""Speaks the aggregator's HTTP: one token for all threads, pages, and a timeout cut to the job's soft budget.

A token is fetched once and refreshed once, under a lock, however many threads find it expired; a request whose token
was turned down is repeated once with the new one.

Not guaranteed: any other retry. A failed request raises and the job decides (`refusals` says which failures may pass
by themselves). The timeout bounds each wait for bytes, not their sum; that is bounded by the job's soft budget
(`books.waits`), and their number by `books.replies`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import httpx

from books.bank import answers
from books.bank.answers import Account, Balance, Requisition, TransactionPage
from books.bank.reader import Reader
from books.bank.refusals import (
    BankAnswerInvalid,
    BankUnavailable,
    refusal,
    speaks_of_token,
)
from books.replies import ReplyRefused, bound_replies
from books.waits import cut_every_wait
from fleet import deadline
from fleet.clock import clock
from fleet.errors import FleetError

WINDOW = timedelta(days=90)  # the longest span that every institution answers in one request
_DAY = timedelta(days=1)
_TOKEN_TIMEOUT = timedelta(seconds=15)  # every thread waits for it


@dataclass(frozen=True, slots=True, repr=False)
class _Token:
    access: str
    access_until: datetime
    refresh: str
    refresh_until: datetime


class BankClient:
    """Thread-safe; one a process. `connections` follows the lane's threads, so that none waits for a socket."""

    def __init__(
        self,
        base_url: str,
        secret_id: str,
        secret_key: str,
        timeout: timedelta = timedelta(seconds=60),
        connections: int = 128,
    ) -> None:
        self._secrets = {"secret_id": secret_id, "secret_key": secret_key}
        self._timeout = timeout
        self._token: _Token | None = None
        self._token_failure: tuple[float, FleetError | None] = 0.0, None
        self._token_lock = threading.Lock()
        self._http = httpx.Client(
            base_url=base_url.rstrip("/") + "/api/v2/",
            headers={"accept": "application/json"},
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        )
        cut_every_wait(self._http)
        bound_replies(self._http)

    def close(self) -> None:
        self._http.close()

    def requisitions(self, page_size: int = 100) -> Iterator[Requisition]:
        """Every connection, page by page."""
        offset = 0
        while True:
            answer = self._get(
                "requisitions/",
                "requisitions",
                {"limit": str(page_size), "offset": str(offset)},
            )
            rows = Reader("requisitions").rows(answer, "results")
            yield from map(answers.requisition, rows)
            offset += len(rows)
            if not rows or not answer.get("next"):
                return

    def account(self, account_id: str) -> Account:
        """The account's master record; answers also where the consent expired."""
        return answers.account(
            self._get(f"accounts/{account_id}/", f"account {account_id}"),
            f"account {account_id}",
        )

    def balances(self, account_id: str) -> tuple[Balance, ...]:
        """The account's balances, as many kinds as its bank has."""
        answer = self._get(f"accounts/{account_id}/balances/", f"account {account_id}")
        return answers.balances(answer, f"account {account_id}")

    def transactions(self, account_id: str, since: date, until: date) -> Iterator[TransactionPage]:
        """The days `since` to `until`, both included, oldest first; one request a window of at most 90 days."""
        if since > until:
            raise ValueError(f"account {account_id}: the days asked for start on {since}, after their end {until}")
        first = since
        while first <= until:
            last = min(first + WINDOW - _DAY, until)
            days = {"date_from": first.isoformat(), "date_to": last.isoformat()}
            answer = self._get(f"accounts/{account_id}/transactions/", f"account {account_id}", days)
            yield answers.page(answer, f"account {account_id}", first, last)
            first = last + _DAY

    def _get(self, path: str, subject: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        access = self._access(stale=None)
        response = self._send("GET", path, subject, access=access, params=params)
        if speaks_of_token(response):
            access = self._access(stale=access)
            response = self._send("GET", path, subject, access=access, params=params)
        return _answer(response, subject, [access])

    def _access(self, stale: str | None) -> str:
        """An access token that lives and is not `stale`; the first thread to miss one fetches it for all.

        Threads that waited for a fetch that failed fail with it, instead of asking a broken bank one after another.
        """
        asked = clock.monotonic()
        # `with` and no acquire(timeout): a budget's end that strikes between acquire and try would leave it taken.
        # What bounds the wait is _TOKEN_TIMEOUT.
        with self._token_lock:
            deadline.check()
            now, token = clock.now(), self._token
            if token is not None and token.access != stale and now < token.access_until:
                return token.access
            failed_at, failure = self._token_failure
            if failure is not None and failed_at >= asked:
                raise BankUnavailable(f"token: none came for any thread ({failure})") from failure
            try:
                self._token = self._renewed(token, now)
            except FleetError as error:
                self._token_failure = clock.monotonic(), error
                raise
            return self._token.access

    def _renewed(self, token: _Token | None, now: datetime) -> _Token:
        read = Reader("token")
        if token is not None and token.refresh_until > now:
            response = self._send("POST", "token/refresh/", "token", body={"refresh": token.refresh})
            if response.status_code != 401:  # a refresh token that was revoked is no reason to fail: log in again
                answer = _answer(response, "token", [token.refresh])
                until = now + read.lifetime(answer, "access_expires")
                return _Token(
                    read.text(answer, "access"),
                    until,
                    token.refresh,
                    token.refresh_until,
                )
        response = self._send("POST", "token/new/", "token", body=self._secrets)
        answer = _answer(response, "token", self._secrets.values())
        return _Token(
            access=read.text(answer, "access"),
            access_until=now + read.lifetime(answer, "access_expires"),
            refresh=read.text(answer, "refresh"),
            refresh_until=now + read.lifetime(answer, "refresh_expires"),
        )

    def _send(
        self,
        method: str,
        path: str,
        subject: str,
        access: str | None = None,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {access}"} if access else {}
        longest = self._timeout if access else min(self._timeout, _TOKEN_TIMEOUT)
        timeout = deadline.clamp(longest).total_seconds()
        try:
            return self._http.request(method, path, params=params, json=body, headers=headers, timeout=timeout)
        except httpx.RequestError as error:
            deadline.check()  # a timeout that the budget cut short is the job's end, not the bank's fault
            raise BankUnavailable(f"{subject}: {type(error).__name__} on {method} {path}; try again later") from error
        except ReplyRefused as error:
            raise BankAnswerInvalid(
                f"{subject}: found {error}, on {method} {path}; try again, then ask the bank"
            ) from error


def _answer(response: httpx.Response, subject: str, secrets: Iterable[str]) -> dict[str, Any]:
    """The object in a successful answer; raises what `refusals` makes of any other, `secrets` taken out."""
    if response.status_code != 200:
        raise refusal(response, subject, secrets)
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError) as error:
        found = f"{len(response.content)} bytes that are no JSON ({error})"
        raise BankAnswerInvalid(
            f"{subject}: found {found} at {response.url.path}; try again, then ask the bank"
        ) from None
    if not isinstance(body, dict):
        raise BankAnswerInvalid(f"{subject}: found {type(body).__name__} instead of an object at {response.url.path}")
    return body
