"""What another side can say to a thing that is sent to it, sorted by the one question that matters: can it have it?

No message holds what was sent, nor words of the other side beyond an error code: they are logged, and go to Sentry.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from fleet.errors import FleetError, RetryLater


@dataclass(frozen=True, slots=True)
class Receipt:
    """The other side has it: under which id of its own, where it gives one."""

    id: str | None


class NotTaken(FleetError):
    """Raised when the other side certainly does not have a thing: nobody answered the door, or it let nobody in."""


class Limited(RetryLater):
    """Raised when the other side takes nothing more for now, this thing included; `after` says how long."""

    def __init__(self, message: str, after: timedelta) -> None:
        super().__init__(message, after)


class Refused(FleetError):
    """Raised when the other side has decided against a thing for good; sending it again would change nothing."""


class Unclear(FleetError):
    """Raised when the other side may or may not have a thing; `answered`: it failed in words, nothing is on its way."""

    def __init__(self, message: str, *, answered: bool = False) -> None:
        super().__init__(message)
        self.answered = answered


class Conflicting(Unclear):
    """Raised when the other side knows this key for another thing: the two records contradict each other."""
