"""The sandbox bank's error answers, in the shapes and words that the public API sends."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from math import ceil

from books.sandbox.bank.weather import CALLS_A_DAY, Quota

CONSENT_DAYS = 90


class Refused(Exception):
    """Raised when a request is answered with an error body; `fault` names it in the log."""

    def __init__(self, status: int, fault: str, summary: str, detail: str, kind: str | None = None) -> None:
        super().__init__(summary)
        self.status, self.fault = status, fault
        self.headers: dict[str, str] = {}
        self.body = {"summary": summary, "detail": detail, "status_code": status} | ({"type": kind} if kind else {})


def credentials() -> Refused:
    return Refused(401, "credentials", "Authentication failed", "No active account found with the given credentials")


def invalid_token() -> Refused:
    return Refused(401, "token", "Invalid token", "Token is invalid or expired")


def unknown_account(account: str) -> Refused:
    return Refused(404, "unknown", "Not found.", f"Account {account} was not found.")


def parameter(name: str, value: str, wanted: str) -> Refused:
    return Refused(400, "parameter", f"Invalid {name}", f"{value!r} should be {wanted}")


def consent_expired(agreement: str, at: date) -> Refused:
    detail = (
        f"EUA was valid for {CONSENT_DAYS} days and it expired at {at} 00:00:00+00:00. "
        "The end user must connect the account once more with new EUA and Requisition"
    )
    return Refused(401, "consent", f"End User Agreement (EUA) {agreement} has expired", detail)


def unavailable(status: int) -> Refused:
    summary, detail, kind = {
        500: ("Couldn't update account data", "Request to institution returned an error", "UnknownRequestError"),
        502: ("Bad gateway", "The institution gave no valid answer", "ServiceError"),
        503: ("Couldn't update account data", "Couldn't connect to institution", "ConnectionError"),
    }[status]
    return Refused(status, "failure", summary, detail, kind)


def rate_limited(resets_in: timedelta, remaining: int = 0) -> Refused:
    seconds = max(1, ceil(resets_in.total_seconds()))
    detail = f"The rate limit for this resource is {CALLS_A_DAY}/day. Please try again in {seconds} seconds"
    refused = Refused(429, "limit", "Rate limit exceeded", detail)
    refused.headers = _limit_headers(remaining, seconds)
    return refused


def limit_headers(quota: Quota, now: datetime) -> dict[str, str]:
    """What the API tells with every answer about an account, in its own spelling."""
    return _limit_headers(quota.remaining, max(0, ceil((quota.resets - now).total_seconds())))


def _limit_headers(remaining: int, seconds: int) -> dict[str, str]:
    values = {"limit": CALLS_A_DAY, "remaining": remaining, "reset": seconds}
    return {f"http_x_ratelimit_account_success_{name}": str(value) for name, value in values.items()}
