"""Failures that use up none of a job's attempts: nobody's fault, so its message comes back as it is, so often at most.

A parked key is a limit of the other side's. A PostgreSQL that is gone (a restart, a failover) fails whatever asks it,
for longer than attempts of a few seconds last. The message counts each in an option of its own, which stock Dramatiq
and older workers carry along and do not read. `LaneRetries` has it come back; who asks whether a failure is the last
(`books.leasing`) goes by the same two functions.

Not guaranteed: that the server fell by itself. A statement that fells it each time does so `MOST_OUTAGES` times before
its job's attempts begin to count.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from dramatiq import Retry

from fleet import wire
from fleet.errors import RetryLater

MOST_PARKINGS = 50  # after that a rate limit uses up attempts like any failure
PARKINGS = "parkings"
# Real time: the first wait; each is longer by as much. So somebody who waits is served soon after a short outage, and a
# long one costs a backlog few failures. In all more than five minutes, longer than a restart or a failover takes; with
# the lot that is drawn none is longer than 30 s.
PAUSE = timedelta(seconds=1)
MOST_OUTAGES = 25  # after that an outage uses up attempts like any failure
OUTAGES = "outages"
COMES_BACK_IN = "comes_back_in"  # never sent: set on what was just sent back, for the middleware that logs it


def is_parked(options: Mapping[str, Any], error: BaseException) -> bool:
    """Whether a failure of the message with these options is a rate limit that uses up no attempt."""
    parkings = wire.count(options.get(PARKINGS))
    return isinstance(error, RetryLater) and error.key is not None and parkings < MOST_PARKINGS


def awaits_postgresql(options: Mapping[str, Any], error: BaseException) -> bool:
    """Whether a failure of the message with these options waits for PostgreSQL, without using up an attempt.

    An error that says itself when its job comes again does not, nor a job that may be tried once only, which the caller
    knows.
    """
    if isinstance(error, RetryLater | Retry) or wire.count(options.get(OUTAGES)) >= MOST_OUTAGES:
        return False
    from fleet.gone import postgresql_gone  # of the broker, whose dead letters import this module

    return postgresql_gone(error)


def pause(times: int) -> timedelta:
    """How long a message waits, in real time, that has met a PostgreSQL that is gone so many times."""
    return times * PAUSE
