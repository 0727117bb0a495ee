"""What went wrong at the bank, by name, read from the status, the headers and the error body.

The API's error bodies are `{"summary", "detail", "status_code"}`, sometimes with a `type`. Its documentation asks for
control flow by status; that is not enough to tell an expired consent from an expired token (both 401; the former was
400 until 2024), so the words decide between those two. Limits come as `HTTP_X_RATELIMIT_ACCOUNT_SUCCESS_LIMIT`,
`…_REMAINING` and `…_RESET` (seconds), which some gateways spell `X-RateLimit-Account-Success-Reset`.

The bank's words are kept, cut short, less the tokens and keys that were sent, and scrubbed as the log is: of IBANs,
mail addresses, amounts, and persons behind a form of address.

Not guaranteed: that a limit set by the institution itself says when it ends; then `NO_RESET_TOLD` is assumed. Nor that
no message holds an owner's name, where the bank writes it and nothing beside it shows it to be one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import timedelta

import httpx

from books.echoes import without
from books.retry_after import retry_after
from fleet.errors import FleetError, RetryLater
from fleet.scrubbing import scrub

NO_RESET_TOLD = timedelta(hours=1)
LONGEST_RESET = timedelta(days=1)  # the API counts by 24 hours; more is a misread header
_LONGEST, _LONGEST_SHOWN = 2_000, 400  # so much more is read that nothing is cut in half before it is scrubbed
_TRY_AGAIN = re.compile(r"try again in (\d{1,9}) seconds", re.IGNORECASE)
_CONSENT = re.compile(
    r"\(EUA\).*has expired|EUA was valid|AccessExpired|access has (expired|been revoked)|AccountInactive|deactivated"
    r"|AccountAccessForbidden|access to the account is forbidden|suspended",
    re.IGNORECASE,
)


class RateLimited(RetryLater):
    """Raised when the aggregator or the institution allows no further request for now; `after` says how long."""


class BankUnavailable(FleetError):
    """Raised when no usable answer came: 5xx, a timeout, a broken connection. Trying again may help."""


class ConsentExpired(FleetError):
    """Raised when the owner's consent ended, was revoked or does not cover the account. Trying again cannot help."""


class BankAnswerInvalid(FleetError):
    """Raised when a successful answer does not have the shape the API promises; names the account and the find.

    Also of any answer that is too large or compressed, whatever its status.
    """


class BankRefused(FleetError):
    """Raised when a request was turned down for good: wrong credentials, an unknown account, a bad parameter."""


def speaks_of_token(response: httpx.Response) -> bool:
    """Whether a 401 means our access token, and not the owner's consent."""
    return response.status_code == 401 and "token" in words(response).lower()


def refusal(response: httpx.Response, subject: str, secrets: Iterable[str] = ()) -> FleetError:
    """The error that an answer other than 200 stands for; `secrets` are taken out of what was said."""
    status, said = response.status_code, scrub(words(response, secrets))[:_LONGEST_SHOWN]
    if status == 429:
        after = wait(response)
        return RateLimited(f"{subject}: {said} (429); the next request is allowed in {after}", after)
    if status in (400, 401, 403, 409) and _CONSENT.search(words(response)):
        return ConsentExpired(f"{subject}: {said} ({status}); its owner has to connect the bank again")
    if status >= 500 or status in (
        408,
        409,
    ):  # 409 without a suspension: the account is still being processed
        return BankUnavailable(f"{subject}: {said} ({status}); try again later")
    return BankRefused(f"{subject}: {said} ({status}); check the credentials and what was asked for")


def words(response: httpx.Response, secrets: Iterable[str] = ()) -> str:
    """Summary, detail and type of an error body without `secrets`, or the status's own phrase if it has none."""
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        return response.reason_phrase or "no reason given"
    said = [value for name in ("summary", "detail", "type") if isinstance(value := body.get(name), str) and value]
    return without(": ".join(dict.fromkeys(said)), secrets)[:_LONGEST] or response.reason_phrase or "no reason given"


def wait(response: httpx.Response) -> timedelta:
    """How long until the next request is allowed: a night duration between 1 s and a day."""
    told = retry_after(response.headers.get("retry-after"))
    for scope in ("account_success_", ""):
        if told is None and not _header(response, f"{scope}remaining"):
            reset = _header(response, f"{scope}reset")
            told = None if reset is None else timedelta(seconds=reset)
    if told is None and (match := _TRY_AGAIN.search(words(response))):
        told = timedelta(seconds=int(match[1]))
    return max(
        timedelta(seconds=1),
        min(NO_RESET_TOLD if told is None else told, LONGEST_RESET),
    )


def _header(response: httpx.Response, name: str) -> int | None:
    name = f"x_ratelimit_{name}"
    value: str | None = response.headers.get(f"http_{name}", response.headers.get(name.replace("_", "-")))
    return int(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 10 else None
