"""`queue(name).actor(...)`: a Dramatiq actor that knows its budget.

The file is the route: `transaction_sync = queue("transaction_sync")` at the head of a module, and below it the
actors of that queue. An actor without a budget of its own takes its lane's, which only a worker (or
`fleet check`) knows; `fleet jobs` prints where each came from.

Declaring an actor opens no connection and reads no environment: the broker does both at the first message.
"""

from __future__ import annotations

import inspect
import re
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import cache
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

import dramatiq
from dramatiq.broker import MessageProxy
from dramatiq.message import Message
from dramatiq.middleware import CurrentMessage

from fleet import deadline, wire
from fleet.broker import FleetBroker
from fleet.broker.ends import Fetched
from fleet.clock import clock
from fleet.coroutines import to_sync
from fleet.declarations import Budget, Retry
from fleet.errors import BudgetInvalid, DeadlineExceeded, DeclarationInvalid
from fleet.safe_args import require_parameters

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, scoped_session

P = ParamSpec("P")
R = TypeVar("R")

OnLost = Callable[[Message[Any], str], None]
"""Called with a message whose job was cut off, and a sentence that says how: "timed out after 340 of 1772"."""

_QUEUE_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]*")
_INSTEAD = {  # options of Dramatiq's that have no place here
    "time_limit": "give it a budget: budget=Budget(soft=…, hard=…, because=…)",
    "max_age": "say when a message expires where it is sent: an Entry's expires=, or send_with_options(expires_at=…)",
    "queue_name": "an actor is of the queue that declares it: queue(NAME).actor",
    "broker": "an actor is of its process's broker, fleet.app.process_broker()",
}


class FleetActor(dramatiq.Actor[P, R]):
    """A Dramatiq actor with a budget; everything a stock actor can do, it can.

    `budget` and `retry` are the actor's own, or None where it takes its lane's. `declared_at` is `file:line`.
    `on_lost` ends the row of a job that was cut off. `safe_args` are the parameters that may be told to Sentry.
    """

    budget: Budget | None
    retry: Retry | None
    on_lost: OnLost | None
    safe_args: tuple[str, ...]
    declared_at: str
    broker: FleetBroker

    def __init__(self, fn: Callable[..., Any], **stock: Any) -> None:
        super().__init__(fn, **stock)
        if iscoroutinefunction(fn):
            self.fn = to_sync(fn)

    def message_with_options(
        self, *, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, **options: Any
    ) -> Message[R]:
        """As stock's, and on the way of every send. `expires_at` is an aware datetime or milliseconds since the epoch,
        both in night time, or None: never, whatever the job that sends has for an expiry.

        Raises `ExpiryInvalid` for any other `expires_at`.
        """
        if wire.EXPIRES_AT in options:
            options[wire.EXPIRES_AT] = wire.expiry_ms(options[wire.EXPIRES_AT], self.actor_name)
        return super().message_with_options(args=args, kwargs=kwargs, **options)

    def send_many(self, arguments: Iterable[tuple[Any, ...]]) -> int:
        """Send one message a tuple of positional arguments, in order; returns how many were accepted.

        Raises whatever `send` raises; the messages before the failing one stay sent.
        """
        return self.broker.enqueue_calls(self, arguments)

    def send_on_commit(
        self, session: Session | scoped_session[Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Message[R]:
        """Send a message with the commit of the session's transaction; a rollback, also of a savepoint, sends nothing.

        What the arguments are made of must be flushed: a row has no id before. Raises as `send_with_options_on_commit`.
        """
        return self.send_with_options_on_commit(session, args=args, kwargs=kwargs)

    def send_with_options_on_commit(
        self,
        session: Session | scoped_session[Any],
        /,
        *,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        delay: timedelta | int | None = None,
        **options: Any,
    ) -> Message[R]:
        """As `send_with_options`, with the commit of the session's transaction (`fleet.outbox`); delays count from now.

        Raises `OutboxMissing` where the session's database has no outbox, `MessageTooLarge`, and what the database
        raises; after the commit nothing.
        """
        from fleet.outbox import send_on_commit  # SQLAlchemy, which a process that only sends need not load

        if isinstance(delay, timedelta):
            delay = int(delay.total_seconds() * 1000)
        message = self.message_with_options(args=args, kwargs=kwargs, **options)
        return send_on_commit(session, self.broker, message, delay)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the body; in a worker under its soft budget.

        Raises `DeadlineExceeded` when a worker's soft budget for this message is used up.
        """
        soft = deadline.take_grant()
        if soft is None:
            return super().__call__(*args, **kwargs)
        return deadline.run_within(soft, super().__call__, *args, **kwargs)

    def lost(self, message: Message[Any], reason: str) -> None:
        """Call `on_lost`, if there is one; in a worker under the soft budget that this thread was granted.

        Raises what `on_lost` raises, and `DeadlineExceeded`.
        """
        soft = deadline.take_grant()
        if self.on_lost is None:
            return
        if soft is None:
            self.on_lost(message, reason)
        else:
            deadline.run_within(soft, self.on_lost, message, reason)


class Queue:
    """A queue by name; the same name is the same queue wherever it is written."""

    def __init__(self, name: str) -> None:
        if not _QUEUE_NAME.fullmatch(name):
            raise DeclarationInvalid(f"queue({name!r}): use letters, digits, dashes and underscores.")
        if len(name) > wire.LONGEST_QUEUE_NAME:  # all of them ASCII
            most = wire.LONGEST_QUEUE_NAME
            raise DeclarationInvalid(f"queue({name!r}): it has {len(name)} letters; give a name of {most} at most.")
        self.name = name

    @overload
    def actor(self, fn: Callable[P, R]) -> FleetActor[P, R]: ...
    @overload
    def actor(
        self,
        *,
        budget: Budget | None = ...,
        retry: Retry | None = ...,
        name: str | None = ...,
        actor_name: str | None = ...,
        on_lost: OnLost | None = ...,
        safe_args: tuple[str, ...] = ...,
        **options: Any,
    ) -> Callable[[Callable[P, R]], FleetActor[P, R]]: ...

    def actor(
        self,
        fn: Any = None,
        *,
        budget: Any = ...,
        retry: Retry | None = None,
        name: Any = None,
        actor_name: str | None = None,
        on_lost: OnLost | None = None,
        safe_args: tuple[str, ...] = (),
        **options: Any,
    ) -> Any:
        """Declare an actor of this queue; `options` are Dramatiq's, and so is `actor_name`, another word for `name`.

        `on_lost(message, reason)` is called when a job was cut off: after a soft deadline in the job's thread, after
        its hard budget or the death of its process elsewhere (also where that message then expired; not while that
        message, queued again, waits or runs). It ends what the job left, on condition that it is still that message's
        (its option `delivery`, where it has one, says of which delivery), and may be called more than once.

        `safe_args` names the parameters whose values are ids and nothing else: Sentry is told those, and no others.

        Raises `BudgetInvalid` for a budget that is not a `Budget`, `DeclarationInvalid` for a name given or declared
        twice, for a safe argument that is no parameter, and for an option of Dramatiq's that has no place here.
        """
        for option, instead in _INSTEAD.items():
            if option in options:
                raise DeclarationInvalid(f"actor({option}={options[option]!r}): there is no {option} here; {instead}.")
        if name is not None and actor_name is not None:
            raise DeclarationInvalid(f"actor(name={name!r}, actor_name={actor_name!r}): give one of the two.")
        if budget is not ... and not isinstance(budget, Budget):
            raise BudgetInvalid(
                f"actor(budget={budget!r}): give Budget(soft=…, hard=…, because=…), or leave it out to take the lane's."
            )

        def declare(function: Callable[P, R]) -> FleetActor[P, R]:
            own = None if budget is ... else budget
            require_parameters(function, safe_args, _place(function))
            actor = self._declare(function, name or actor_name or function.__name__, options)
            actor.budget, actor.retry, actor.on_lost, actor.safe_args = own, retry, on_lost, tuple(safe_args)
            return actor

        return declare if fn is None else declare(fn)

    def _declare(self, fn: Callable[P, R], name: str, options: dict[str, Any]) -> FleetActor[P, R]:
        from fleet.app import process_broker  # fleet.app imports this module's Queue's users by name

        broker = process_broker()
        if name in broker.actors:
            other = cast("FleetActor[Any, Any]", broker.actors[name]).declared_at
            raise DeclarationInvalid(f"The actor {name!r} of {_place(fn)} is declared already, at {other}.")
        throws = options.pop("throws", ())
        options["throws"] = (DeadlineExceeded, *(throws if isinstance(throws, tuple) else (throws,)))
        declared = dramatiq.actor(
            fn, actor_class=FleetActor, actor_name=name, queue_name=self.name, broker=broker, **options
        )  # type: ignore[call-overload]  # stock's overloads fix actor_class to Actor
        actor = cast("FleetActor[P, R]", declared)
        actor.declared_at = _place(fn)
        return actor


def _place(fn: Callable[..., Any]) -> str:
    code = inspect.unwrap(fn).__code__
    return f"{Path(code.co_filename)}:{code.co_firstlineno}"


@cache
def queue(name: str) -> Queue:
    """The queue of this name.

    Raises `DeclarationInvalid` if Redis keys could not be built from the name.
    """
    return Queue(name)


def current_message() -> Message[Any] | None:
    """The message this thread works on; None outside a worker."""
    return CurrentMessage.get_current_message()


def asked_at(message: Message[Any] | MessageProxy) -> datetime:
    """The night instant that a message answers for: its slot, or when it, or what it came of, was sent.

    Work that began later than that has answered it. A message that names no instant asks now.
    """
    options = message.options
    named = wire.instant(options.get(wire.SLOT)) or wire.instant(options.get(wire.ASKED_AT))
    if named is not None:
        return named
    sent = wire.instant(message.message_timestamp)
    return clock.to_night(sent) if sent is not None else clock.now()


def current_asked_at() -> datetime:
    """`asked_at` of the message this thread works on; outside a worker now."""
    message = current_message()
    return asked_at(message) if message is not None else clock.now()


def current_message_id() -> str:
    """The id of the message this thread works on, the same over retries and redeliveries; outside a worker a fresh one.

    Rows a job works on are leased to it: a redelivered message takes over the row it held.
    """
    message = current_message()
    return message.message_id if message is not None else str(uuid.uuid4())


def current_delivery() -> str:
    """A name of this delivery of the message that this thread works on, unlike that of any other; outside a worker a
    fresh one.

    It is the token of the leases that a job takes: what a delivery writes that was reaped meanwhile is told from what
    the next one writes.
    """
    fetched = getattr(current_message(), "fetched", None)  # a stock worker's message has none
    return f"{fetched.worker}:{fetched.delivery}" if isinstance(fetched, Fetched) else str(uuid.uuid4())
