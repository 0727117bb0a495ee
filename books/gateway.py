"""Speaks to a side that takes things once: the tax authority (filings) and the payment gateway (charges).

Each thing is sent under its Idempotency-Key, and can be asked for by it. What went wrong is sorted by the one question
that matters, whether the other side can have it (`books.outside.answers`).

Not guaranteed: any retry. A timeout bounds each wait for bytes, not their sum; that is bounded by the job's soft budget
(`books.waits`), and their number by `books.replies`. No message holds what was sent, nor words of the other side beyond
its error code.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import httpx

from books.outside.answers import Conflicting, Limited, NotTaken, Receipt, Refused, Unclear
from books.replies import ReplyRefused, bound_replies
from books.retry_after import retry_after
from books.waits import cut_every_wait
from fleet import deadline

NO_RESET_TOLD = timedelta(minutes=1)
LONGEST_RESET = timedelta(hours=1)
_CODE = re.compile(r"[a-z_]{1,40}")
_AGAINST_IT = frozenset({400, 402, 405, 410, 413, 415})
_BEFORE_IT_LEFT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_FAILED = frozenset({500, 501, 502, 503, 504})  # not 409 (the first of two is still on its way)


class GatewayClient:
    """Of one side; thread-safe, one a process. `path` is where things are sent and asked for, such as `/v1/charges`."""

    def __init__(
        self,
        base_url: str,
        key: str,
        path: str,
        timeout: timedelta = timedelta(seconds=20),
        connections: int = 128,
    ) -> None:
        self._path, self._timeout = path, timeout
        self._http = httpx.Client(
            base_url=base_url.rstrip("/"),
            headers={"accept": "application/json", "authorization": f"Bearer {key}"},
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        )
        cut_every_wait(self._http)
        bound_replies(self._http)

    def close(self) -> None:
        self._http.close()

    def send(self, key: str, body: dict[str, Any]) -> Receipt:
        """Have the thing taken; the same key and body any number of times take it once.

        Raises `NotTaken`, `Limited`, `Unclear`, `Refused`.
        """
        try:
            answer = self._request("POST", json=body, headers={"idempotency-key": key})
        except (*_BEFORE_IT_LEFT, httpx.InvalidURL) as error:
            deadline.check()
            raise NotTaken(f"{key}: {type(error).__name__} on POST {self._path}; try again later") from error
        except httpx.RequestError as error:
            deadline.check()  # a wait that the budget cut short is the job's end
            raise Unclear(f"{key}: {type(error).__name__} on POST {self._path}; ask whether it was taken") from error
        except ReplyRefused as error:
            raise Unclear(f"{key}: {error}, on POST {self._path}; ask whether it was taken") from error
        if answer.status_code == 429:
            after = _wait(answer)
            raise Limited(f"{key}: too many requests (429); the next is allowed in {after}", after)
        if answer.status_code in (401, 403):
            raise NotTaken(f"{key}: {_code(answer)} ({answer.status_code}); check the credentials in the settings")
        return self._receipt(answer, key)

    def ask(self, key: str) -> Receipt | None:
        """Whether a thing of this key was received; None if not.

        Raises `Unclear` if there is no answer to that, `Refused` if it was received and decided against.
        """
        try:
            answer = self._request("GET", params={"key": key})
        except (httpx.RequestError, httpx.InvalidURL) as error:
            deadline.check()
            raise Unclear(
                f"{key}: {type(error).__name__} on GET {self._path}; nobody says whether it is there"
            ) from error
        except ReplyRefused as error:
            raise Unclear(f"{key}: {error}, on GET {self._path}; nobody says whether it is there") from error
        if answer.status_code == 404 and _code(answer) == "unknown_key":
            return None
        return self._receipt(answer, key)

    def _request(self, method: str, **more: Any) -> httpx.Response:
        return self._http.request(method, self._path, timeout=deadline.clamp(self._timeout).total_seconds(), **more)

    def _receipt(self, answer: httpx.Response, key: str) -> Receipt:
        status, code = answer.status_code, _code(answer)
        found = _body(answer)
        if status in (200, 201) and isinstance(found.get("id"), str):
            if found.get("status") == "declined":
                raise Refused(f"{key}: {code or 'declined'}")
            return Receipt(found["id"])
        if status in _AGAINST_IT:
            raise Refused(f"{key}: {code or 'no reason given'} ({status})")
        if status == 422:
            raise Conflicting(f"{key}: another thing was sent under this key before ({status}); compare the two")
        raise Unclear(f"{key}: {code or 'an answer that cannot be read'} ({status})", answered=status in _FAILED)


def _body(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = json.loads(answer.content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _code(answer: httpx.Response) -> str:
    """The error's code, if it looks like one: words for people may hold anything."""
    error = _body(answer).get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""


def _wait(answer: httpx.Response) -> timedelta:
    """A night duration of 1 s to an hour."""
    told = retry_after(answer.headers.get("retry-after"))
    return max(timedelta(seconds=1), min(NO_RESET_TOLD if told is None else told, LONGEST_RESET))
