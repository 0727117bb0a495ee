"""Holds a row for the message that works on it, and leaves it readable however the work ends.

`take` claims; `Hold.to_the_end` turns the ways a body can fail into the row's status: a failure that is tried again
hands the row back, as the interrupt of a drain does; the last failure ends it, unless it uses up no attempt
(`fleet.unspent`). A body that is cut off writes nothing: its actor's `on_lost` says with `lost` how far it came. All
are conditional on the lease, which is this one delivery's of the message; a body that lost it raises `LeaseLost` at its
next write and changes nothing.

Not guaranteed: a terminal row after SIGKILL. Its message comes again and takes the row over by its id, or, where it is
refused or condemned instead, has `on_lost` end it; where the message is gone too, a janitor ends the row once the lease
has lapsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar, cast

from dramatiq import Message
from dramatiq.middleware import Shutdown
from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from fleet import unspent, wire
from fleet.actor import FleetActor, current_delivery, current_message
from fleet.app import effective_retry, longest_hard, process_broker
from fleet.budgets import budget_of
from fleet.errors import FleetError
from fleet.logs import get_logger
from fleet.scrubbing import scrub
from fleet.storage import leases, session
from fleet.storage.leases import Lease

log = get_logger(__name__)

SLACK = timedelta(seconds=30)  # the supervisor acts within 2 s of a hard budget; the rest is for a slow database
OUTSIDE_A_WORKER = timedelta(minutes=15)

Row = TypeVar("Row", bound=Lease)

Then = Callable[[Session, Any], None]
"""What follows from a row's move, called with its id in the transaction that moved it; it looks what the row became."""


class LeaseLost(FleetError):
    """Raised when a body finds that its row is no longer its own; another delivery holds it, or a janitor ended it."""


def lease_time() -> timedelta:
    """How long this job may hold a row, so that a lapsed lease means a dead worker.

    That is its hard budget, and the lane's longest one: so long may a process live that is retired for a job past its
    hard budget, and with it that job, which nobody can take the row from.
    """
    message, broker = current_message(), process_broker()
    held = budget_of(broker, message) if message is not None else None
    lane = broker.lanes.get(message.queue_name) if message is not None else None
    if held is None or lane is None:
        return OUTSIDE_A_WORKER
    return held.budget.hard + longest_hard(broker.actors, lane) + SLACK


def uses_up_no_attempt(error: BaseException) -> bool:
    """Whether after this failure the job comes back with as many attempts as before: a parked key, PostgreSQL gone."""
    message, attempts = current_message(), _attempts()
    options = {} if message is None else message.options
    once = attempts == 1
    return unspent.is_parked(options, error) or (not once and unspent.awaits_postgresql(options, error))


def is_last_attempt(error: BaseException | None = None) -> bool:
    """Whether a failure of this job now, or this one, would be final; False outside a worker."""
    message, attempts = current_message(), _attempts()
    if message is None or attempts is None or (error is not None and uses_up_no_attempt(error)):
        return False
    return wire.count(message.options.get("retries")) + 1 >= attempts


def _attempts() -> int | None:
    """How often this job may be tried in all; None outside a worker."""
    actor = _actor()
    return None if actor is None else effective_retry(actor, process_broker().lanes[actor.queue_name]).attempts


def _actor() -> FleetActor[Any, Any] | None:
    message = current_message()
    if message is None or message.queue_name not in process_broker().lanes:
        return None
    return cast("FleetActor[Any, Any]", process_broker().get_actor(message.actor_name))


@dataclass
class Hold(Generic[Row]):
    """A row that is this delivery's of a message until `finish`, or until it loses the lease."""

    model: type[Row]
    row: Row
    message: str
    token: str
    then: Then | None = None

    def renew(self, s: Session) -> None:
        """Extend the lease in the caller's transaction; raises `LeaseLost`, which rolls that transaction back."""
        if not leases.renew(s, self.model, self.row.id, token=self.token, lease=lease_time()):
            raise self._lost()

    def finish(
        self, status: str, outcome: str | None, s: Session | None = None, *, then: Then | None = None, **values: Any
    ) -> None:
        """End or hand back the row, in the caller's transaction if given; raises `LeaseLost`.

        `then` follows from this move in place of what follows from every other.
        """
        if s is None:
            with session() as own:
                self.finish(status, outcome, own, then=then, **values)
            return
        held = leases.finish(s, self.model, self.row.id, token=self.token, status=status, outcome=outcome, **values)
        if not held:
            raise self._lost()
        then = then or self.then
        if then is not None:
            then(s, self.row.id)

    def _lost(self) -> LeaseLost:
        found = f"{self.model.__name__} {self.row.id} is no longer held by this delivery ({self.token})"
        return LeaseLost(f"{found} of message {self.message}; what it did after that was not written.")

    @contextmanager
    def to_the_end(self, *, back_to: str, failed: str) -> Iterator[None]:
        """An `Exception`, or a `Shutdown`, that the block raises is raised on, after the row says it.

        `back_to` is the status of a row whose message will be tried again. After a deadline the row is ended by its
        actor's `on_lost` (`lost`), which no second deadline can cut.
        """
        try:
            yield
        except LeaseLost:
            raise
        except Shutdown:
            self._say(back_to, "its worker was stopped; runs again")
            raise
        except Exception as error:
            if is_last_attempt(error):
                self._say(failed, f"gave up after {self.row.attempts} attempts: {_words(error)}")
            else:
                self._say(back_to, f"will be tried again: {_words(error)}")
            raise

    @contextmanager
    def tried(self, *, back_to: str, failed: str, most: int, passes: Callable[[Exception], bool]) -> Iterator[None]:
        """The same for a row of a backlog, which has no message whose attempts are counted: the row's own are.

        It ends `failed` with its `most`th try. What `passes` by itself (a model that is away) is no try.
        """
        untried = {"attempts": self.row.attempts - 1}
        try:
            yield
        except LeaseLost:
            raise
        except Shutdown:
            self._say(back_to, "its worker was stopped; waits again", **untried)
            raise
        except Exception as error:
            if passes(error):
                self._say(back_to, f"waits again: {_words(error)}", **untried)
            elif self.row.attempts >= most:
                self._say(failed, f"gave up after {self.row.attempts} tries: {_words(error)}")
            else:
                self._say(back_to, f"will be tried again: {_words(error)}")
            raise

    def _say(self, status: str, outcome: str, **values: Any) -> None:
        """The row's end on the way out of an error, which must not be replaced by a second one."""
        try:
            self.finish(status, outcome, **values)
        except Exception as error:
            log.error("outcome_not_written", row=f"{self.model.__name__} {self.row.id}", error=repr(error))


def _words(error: Exception) -> str:
    """What an error says, as the log would: PostgreSQL quotes the row that it refuses, and outcomes are shown."""
    return scrub(str(error))


def lost(model: type[Lease], message: Message[Any], reason: str, *, failed: str, then: Then | None = None) -> None:
    """End the row that a message of one argument names, if that message still holds it; its job was cut off.

    For an actor's `on_lost`. A row that has ended, or is another message's by now, is left as it is.
    """
    row_id = row_of(message)
    with session() as s:
        ended = end_lost(s, model, row_id, message, reason, failed=failed)
        if ended and then is not None:
            then(s, row_id)
    log.info("row_lost", row=f"{model.__name__} {row_id}", reason=reason, ended=ended)


def row_of(message: Message[Any]) -> int:
    """The row that a message of one argument is about."""
    return int(next(iter((*message.args, *message.kwargs.values()))))


def cut_off(reason: str, done: int, of: int | None, what: str) -> str:
    """The outcome of a job over many rows: "timed out after 340 of 1772: split the file and try again".

    After a hard budget, too, of which `on_lost` is told no more than that.
    """
    how_far = f"after {done}" if of is None else f"after {done} of {of}"
    timed_out = reason == "hard budget" or reason.startswith("timed out")
    said = f"timed out {how_far}" if timed_out else f"{reason}; ended {how_far}"
    return f"{said}: split the {what} and try again"


def end_lost(
    s: Session, model: type[Lease], row_id: object, message: Message[Any], reason: str, *, failed: str
) -> bool:
    """End one row of a message whose job was cut off; False if it has ended or is in other hands.

    After a soft deadline only what that delivery holds: its process may have stood still for so long that the message
    was delivered again, and the row is then its next delivery's.
    """
    token = message.options.get(wire.DELIVERY)
    return leases.finish_lost(s, model, row_id, message=message.message_id, token=token, status=failed, outcome=reason)


def take(
    model: type[Row],
    row_id: int,
    *,
    message: str,
    claimable: Sequence[str],
    only: ColumnElement[bool] | None = None,
    then: Then | None = None,
    **values: Any,
) -> Hold[Row] | None:
    """Claim a row for this delivery of a message; None, and a line in the log, if there is nothing to do on it.

    `only` and `values` are those of `leases.claim`; `then` follows from the row's end, and from its being handed back.
    """
    token = current_delivery()
    with session() as s:
        lease = lease_time()
        row = leases.claim(
            s, model, row_id, message=message, token=token, lease=lease, claimable=claimable, only=only, **values
        )
    if row is None:
        log.info("row_not_claimed", row=f"{model.__name__} {row_id}", message_id=message)
        return None
    return Hold(model, row, message, token, then)
