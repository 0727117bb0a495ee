"""Holds a row for the message that works on it, and leaves it readable however the work ends.

`take` claims; `Hold.to_the_end` turns the ways a body can end into the row's status: a deadline says how far it came,
a failure that is tried again hands the row back, the last failure ends it. All are conditional on the lease; a body
that lost it raises `LeaseLost` at its next write and changes nothing.

Not guaranteed: a terminal row after SIGKILL or a second deadline while the outcome is being written. Its message comes
again and takes the row over by its id; failing that, a janitor ends the row once the lease has lapsed.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar, cast

from sqlalchemy.orm import Session

from fleet.actor import FleetActor, current_message
from fleet.app import effective_budget, effective_retry, process_broker
from fleet.errors import DeadlineExceeded, FleetError, RetryLater
from fleet.logs import get_logger
from fleet.storage import leases, session
from fleet.storage.leases import Lease

log = get_logger(__name__)

SLACK = timedelta(
    seconds=30
)  # the supervisor takes a job away within 2 s of its hard budget; the rest is for a slow database
OUTSIDE_A_WORKER = timedelta(minutes=15)
_STRIKES = 3
_OUTCOME_WITHIN = timedelta(seconds=20)  # shorter than the time between a soft and a hard budget

Row = TypeVar("Row", bound=Lease)


class LeaseLost(FleetError):
    """Raised when a body finds that its row is no longer its own; another message holds it, or a janitor ended it."""


def lease_time() -> timedelta:
    """How long this job may hold a row: its hard budget and some slack, so that a lapsed lease means a dead worker."""
    actor = _actor()
    if actor is None:
        return OUTSIDE_A_WORKER
    lane = process_broker().lanes[actor.queue_name]
    return effective_budget(actor, lane).hard + SLACK


def _is_parked(error: Exception) -> bool:
    """Whether a failure is a rate limit, which uses up no attempt."""
    return isinstance(error, RetryLater) and error.key is not None


def is_last_attempt() -> bool:
    """Whether a failure of this job now would be final; False outside a worker."""
    actor, message = _actor(), current_message()
    if actor is None or message is None:
        return False
    lane = process_broker().lanes[actor.queue_name]
    return int(message.options.get("retries", 0)) + 1 >= effective_retry(actor, lane).attempts


def _actor() -> FleetActor[Any, Any] | None:
    message = current_message()
    if message is None or message.queue_name not in process_broker().lanes:
        return None
    return cast("FleetActor[Any, Any]", process_broker().get_actor(message.actor_name))


@dataclass
class Hold(Generic[Row]):
    """A row that is this message's until `finish`, or until its lease lapses."""

    model: type[Row]
    row: Row
    token: str

    def renew(self, s: Session) -> None:
        """Extend the lease in the caller's transaction; raises `LeaseLost`, which rolls that transaction back."""
        if not leases.renew(s, self.model, self.row.id, token=self.token, lease=lease_time()):
            raise LeaseLost(f"{self.model.__name__} {self.row.id} is no longer held by message {self.token}.")

    def finish(self, status: str, outcome: str | None, s: Session | None = None, **values: Any) -> None:
        """End or hand back the row, in the caller's transaction if given; raises `LeaseLost`."""
        if s is None:
            with session() as own:
                self.finish(status, outcome, own, **values)
            return
        held = leases.finish(s, self.model, self.row.id, token=self.token, status=status, outcome=outcome, **values)
        if not held:
            raise LeaseLost(f"{self.model.__name__} {self.row.id} is no longer held by message {self.token}.")

    @contextmanager
    def to_the_end(self, *, back_to: str, failed: str, progress: Callable[[], str] = lambda: "") -> Iterator[None]:
        """Whatever the block raises is raised on, after the row says it.

        `back_to` is the status of a row whose message will be tried again; `progress` is asked how far a body came
        that is cut off ("after page 1 of 2").
        """
        try:
            yield
        except LeaseLost:
            raise
        except DeadlineExceeded:
            self._say(failed, f"timed out {progress()}".strip())
            raise
        except Exception as error:
            if is_last_attempt() and not _is_parked(error):
                self._say(failed, f"gave up after {self.row.attempts} attempts: {error}")
            else:
                self._say(back_to, f"will be tried again: {error}")
            raise

    def _say(self, status: str, outcome: str) -> None:
        """The row's end on the way out of an error, which must not be replaced by a second one.

        Written by a thread of its own: the deadline is raised in this one again until it leaves, and a raise that
        strikes inside the driver costs the write. It may strike between any two lines here, so each can be repeated.
        """
        context, only_once, said = copy_context(), allocate_lock(), SimpleQueue[None]()
        asked = ended = False

        def write() -> None:
            nonlocal ended
            if only_once.acquire(blocking=False):
                context.run(self._write_outcome, status, outcome)
                ended = True
                said.put(None)

        for _ in range(_STRIKES):
            try:
                if not asked:
                    _outcomes.put(write)
                    asked = True
                if not ended:
                    said.get(timeout=_OUTCOME_WITHIN.total_seconds())
                return
            except DeadlineExceeded:
                continue  # the caller is raising one already
            except Empty:
                break
        log.error("outcome_late", row=f"{self.model.__name__} {self.row.id}", status=status, outcome=outcome)

    def _write_outcome(self, status: str, outcome: str) -> None:
        try:
            self.finish(status, outcome)
        except Exception as error:  # the thread is everybody's
            log.error("outcome_not_written", row=f"{self.model.__name__} {self.row.id}", error=repr(error))


_outcomes: SimpleQueue[Callable[[], None]] = SimpleQueue()


@cache
def _outcome_writer() -> Thread:
    """The process's one writer of outcomes, started at the first claim.

    Not at the deadline: until a new thread runs, CPython keeps it under its maker's id, and a raise meant for the
    maker strikes the new thread instead.
    """

    def write_for_ever() -> None:
        while True:
            _outcomes.get()()

    thread = Thread(target=write_for_ever, name="outcomes", daemon=True)
    thread.start()
    return thread


def take(model: type[Row], row_id: int, *, token: str, claimable: Sequence[str]) -> Hold[Row] | None:
    """Claim a row for the message `token`; None, and a line in the log, if there is nothing to do on it."""
    _outcome_writer()
    with session() as s:
        row = leases.claim(s, model, row_id, token=token, lease=lease_time(), claimable=claimable)
    if row is None:
        log.info("row_not_claimed", row=f"{model.__name__} {row_id}", token=token)
        return None
    return Hold(model, row, token)
