"""What each refusal of the aggregator is called, and when a limit ends; the bodies are the public API's own."""

from __future__ import annotations

from datetime import timedelta
from email.utils import format_datetime

import httpx
import pytest

from books.bank import BankRefused, BankUnavailable, ConsentExpired, RateLimited
from books.bank.refusals import refusal
from fleet.clock import clock
from fleet.errors import FleetError, RetryLater

SUBJECT = "account 7e944232-bda9-40bc-b784-660c7ab5fe78"
OURS, ALL = "HTTP_X_RATELIMIT_ACCOUNT_SUCCESS", "HTTP_X_RATELIMIT"
LIMITED = {"summary": "Rate limit exceeded", "detail": "The rate limit is 4/day. Please try again in 77 seconds"}


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({f"{OURS}_REMAINING": "0", f"{OURS}_RESET": "120"}, LIMITED, 120),
        ({"X-RateLimit-Account-Success-Reset": "121"}, LIMITED, 121),
        (
            {f"{OURS}_REMAINING": "3", f"{OURS}_RESET": "9000", f"{ALL}_REMAINING": "0", f"{ALL}_RESET": "9"},
            LIMITED,
            9,
        ),
        ({"Retry-After": "30"}, LIMITED, 30),
        ({"Retry-After": "soon"}, LIMITED, 77),
        ({"Retry-After": "Mon, 01 Jan 99999999999 00:00:00 GMT"}, LIMITED, 77),
        ({}, LIMITED, 77),
        ({}, {"summary": "Daily request limit set by the Institution has been exceeded."}, 3600),
        ({"Retry-After": "1795973009"}, {}, 86_400),
        ({"Retry-After": "0"}, {}, 1),
    ],
)
def test_a_limit_says_when_it_ends_however_the_bank_tells(
    headers: dict[str, str], body: dict[str, str], seconds: int
) -> None:
    limited = refusal(httpx.Response(429, headers=headers, json=body), SUBJECT)
    assert isinstance(limited, RateLimited) and isinstance(limited, RetryLater)
    assert limited.after == timedelta(seconds=seconds)


def test_a_limit_may_end_at_a_date() -> None:
    end = format_datetime(clock.now() + timedelta(minutes=5), usegmt=False)
    limited = refusal(httpx.Response(429, headers={"Retry-After": end}, json=LIMITED), SUBJECT)
    assert isinstance(limited, RateLimited)
    assert timedelta(minutes=4, seconds=50) < limited.after <= timedelta(minutes=5)


def test_a_refusal_holds_no_iban_and_no_token_that_was_sent_wherever_in_it_they_stand() -> None:
    detail = f"{'x' * 380} DE89 3704 0044 0532 0130 00, Frau Erika Musterfrau, with a-token-of-ours"
    body = {"summary": "Not permitted for DE89370400440532013000", "detail": detail}
    told = str(refusal(httpx.Response(400, json=body), SUBJECT, ["a-token-of-ours"]))
    assert told.startswith(f"{SUBJECT}: Not permitted for [iban]: xxx")
    assert not [part for part in ("DE89", "3704", "Erika", "a-token") if part in told]


EUA = "End User Agreement (EUA) 1a2b has expired"


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, {"summary": EUA, "detail": "EUA was valid for 90 days and it expired at 2026-01-27"}, ConsentExpired),
        (400, {"summary": EUA, "detail": "EUA was valid for 90 days and it expired at 2023-07-05"}, ConsentExpired),
        (401, {"summary": "Couldn't update account", "type": "AccessExpiredError"}, ConsentExpired),
        (401, {"summary": "x", "detail": "Access has expired or it has been revoked."}, ConsentExpired),
        (401, {"summary": "AccountInactiveError", "detail": "Account has been deactivated"}, ConsentExpired),
        (403, {"summary": "AccountAccessForbidden", "detail": "Access to the account is forbidden."}, ConsentExpired),
        (409, {"summary": "Account suspended", "detail": "due to numerous errors"}, ConsentExpired),
        (409, {"summary": "AccountProcessing", "detail": "Account data is being processed"}, BankUnavailable),
        (500, {"summary": "UnknownRequestError"}, BankUnavailable),
        (503, {"summary": "ConnectionError", "detail": "Couldn't connect to institution."}, BankUnavailable),
        (404, {"summary": "Not found.", "detail": "Not found."}, BankRefused),
        (403, {"summary": "Forbidden", "detail": "1.2.3.4 isn't whitelisted to perform this action"}, BankRefused),
        (401, {"summary": "Authentication failed", "detail": "No active account found"}, BankRefused),
    ],
)
def test_every_refusal_has_its_name_and_says_what_the_bank_said(
    status: int, body: dict[str, str], error: type[FleetError]
) -> None:
    found = refusal(httpx.Response(status, json={**body, "status_code": status}), SUBJECT)
    assert type(found) is error
    assert str(found).startswith(f"{SUBJECT}: {body['summary']}") and f"({status})" in str(found)
