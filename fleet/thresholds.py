"""From when on a queue is unhealthy: what an application declares in `config/thresholds.py`, by queue.

Ages and lags are what people feel, so that they judge; depth alone is no alarm while a queue drains.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from fleet.declarations import ZERO
from fleet.errors import DeclarationInvalid
from fleet.reasons import reason_says_something

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Limit:
    """More than `most` for as long as `for_` opens an alert, which closes when it was not so for as long as `keep`.

    All in night time. Raises `DeclarationInvalid` for a negative time or a reason that says nothing.
    """

    most: timedelta | int
    for_: timedelta
    keep: timedelta
    because: str

    def __post_init__(self) -> None:
        if self.for_ < ZERO or self.keep < ZERO:
            raise DeclarationInvalid(f"Limit(for_={self.for_}, keep={self.keep}): give durations of zero or more.")
        if not reason_says_something(self.because):
            raise DeclarationInvalid(f"Limit({self.most!r}, because={self.because!r}): say why that much is too much.")


@dataclass(frozen=True)
class Thresholds:
    """The limits of one queue, and who is hurt when one is passed.

    `age` is of the oldest due message, `lag` how late 95 of 100 messages start at most, `depth` of waiting messages
    that do not drain, `dead` of messages that became dead letters lately.
    """

    hurts: str
    age: Limit
    lag: Limit
    depth: Limit
    dead: Limit

    def __post_init__(self) -> None:
        spans, counts = (self.age, self.lag), (self.depth, self.dead)
        if not all(isinstance(one.most, timedelta) for one in spans) or any(
            isinstance(one.most, timedelta) for one in counts
        ):
            raise DeclarationInvalid(
                f"Thresholds({self.hurts!r}): age and lag are durations, depth and dead are counts."
            )


DEFAULT = Thresholds(
    hurts="whoever waits for this queue's work",
    age=Limit(
        30 * _MINUTE, for_=2 * _MINUTE, keep=5 * _MINUTE, because="half an hour without a start is a jam or an outage"
    ),
    lag=Limit(
        30 * _MINUTE,
        for_=5 * _MINUTE,
        keep=10 * _MINUTE,
        because="work that starts so late was planned to start sooner",
    ),
    depth=Limit(
        1_000,
        for_=15 * _MINUTE,
        keep=15 * _MINUTE,
        because="a quarter of an hour without draining is no burst any more",
    ),
    dead=Limit(0, for_=ZERO, keep=30 * _MINUTE, because="each is work that nobody does any more without a person"),
)
"""For queues of which an application says nothing."""
