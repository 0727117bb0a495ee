"""What went wrong at the model, by name, read from the status and the headers.

No message holds the key, or what an answer held. The API's own words are kept, cut short, where they are about
credentials, credit or limits (401 to 404, 429) or a failure of its own (5xx). A request that is turned down for what is
in it is often repeated in the words, and with it the receipt: of any other status stand only code, type and parameter.

Not guaranteed: that a limit says when it ends; then `NO_RESET_TOLD` is assumed. Nor that an API which repeats the
request with one of the statuses above shows none of it.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from books.echoes import without
from books.retry_after import retry_after
from fleet.errors import FleetError, RetryLater

if TYPE_CHECKING:
    import openai

NO_RESET_TOLD = timedelta(minutes=1)  # the API counts by the minute
LONGEST_RESET = timedelta(days=1)
_NOT_OF_THE_REQUEST = frozenset({401, 402, 403, 404, 429})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\[\]-]{0,79}")  # words for people have blanks


class ModelRateLimited(RetryLater):
    """Raised when the model takes no further request for now; `after` (a night duration) says how long."""


class ModelUnavailable(FleetError):
    """Raised when no answer came: 5xx, a timeout, a broken connection. Trying again may help."""


class ModelAnswerInvalid(FleetError):
    """Raised when an answer was not usable, and neither was the one after saying so; names run, step and the find."""


class ModelRefused(FleetError):
    """Raised when a request was turned down for good: a wrong key, an unknown model, a bad request, no credit."""


def refusal(error: openai.APIStatusError, subject: str, key: str) -> FleetError:
    """The error that an answer other than 2xx stands for; `key`, and what was asked, is not in it (see above)."""
    status, said = error.status_code, _words(error, key)
    if status == 429 and error.code == "insufficient_quota":
        return ModelRefused(f"{subject}: {said} (429); waiting does not help, see to the account's credit")
    if status == 429:
        after = wait(error.response.headers.get("retry-after"))
        return ModelRateLimited(f"{subject}: {said} (429); the next request is allowed in {after}", after)
    if status >= 500 or status in (408, 409):
        return ModelUnavailable(f"{subject}: {said} ({status}); try again later")
    return ModelRefused(f"{subject}: {said} ({status}); check the key, the model's name and what was asked for")


def wait(header: str | None) -> timedelta:
    """How long until the next request is allowed, from seconds or an HTTP date: a night duration of 1 s to a day."""
    told = retry_after(header)
    return max(timedelta(seconds=1), min(NO_RESET_TOLD if told is None else told, LONGEST_RESET))


def _words(error: openai.APIStatusError, key: str) -> str:
    """What the API said, as far as it may be kept, and how it calls the error."""
    body = error.body if isinstance(error.body, dict) else {}
    kept = error.status_code in _NOT_OF_THE_REQUEST or error.status_code >= 500
    said = body.get("message") if kept else None
    told = without(said, [key])[:300] if isinstance(said, str) else ""
    names = [
        f"{name} {without(value, [key])}"
        for name in ("code", "type", "param")
        if isinstance(value := body.get(name), str) and _NAME.fullmatch(value)
    ]
    return ", ".join([told or error.response.reason_phrase or "no reason given", *names])
