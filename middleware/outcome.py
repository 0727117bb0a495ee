"""The one word for how a message ended, as metrics and records spell it."""

from __future__ import annotations

from typing import Literal

from dramatiq import MessageProxy

from fleet.errors import DeadlineExceeded

Outcome = Literal["done", "failed", "retried", "deadline", "expired", "discarded", "waits", "skipped"]
_REFUSALS: tuple[Outcome, ...] = ("expired", "discarded", "waits")  # as options, set by who refuses


def outcome(message: MessageProxy, exception: BaseException | None) -> Outcome:
    """Judge after `LaneRetries` decided: `failed` and `deadline` are dead letters, `retried` comes again."""
    if exception is None:
        return "done"
    if isinstance(exception, DeadlineExceeded):
        return "deadline"
    return "failed" if message.failed else "retried"


def skipped(message: MessageProxy) -> Outcome:
    """`expired` for a late message, `discarded` or `waits` for one whose slot another's has, `skipped` for any other.

    One that waits comes again; the others are gone.
    """
    return next((how for how in _REFUSALS if message.options.get(how) is True), "skipped")
