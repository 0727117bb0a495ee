"""`actor.send_on_commit(session, …)`: a message that goes out with the commit of the rows it belongs to.

The message is written as a row of the caller's transaction, as it will be sent: the before-enqueue hooks run now, in
the context of the job that sends, and its Redis id is fixed now. When the transaction has committed, and its connection
is back in the pool, the rows that are in the database are read back by their ids and handed to Redis in their order
(`fleet.handover`). So a rollback, also of a savepoint, sends nothing: what vanished in the database is not there to be
sent. What a crash or a Redis that is away leaves behind, the relay sends; it also deletes the rows (`fleet.relay`).

Not guaranteed: order among sessions, or beyond the first attempt; once (see `fleet.handover`); that a hook which ran
had its message sent. On failure: a database that does not take the row raises here, and `OutboxMissing` where the
session's database has no outbox. After the commit nothing raises: Redis away is said once, and the relay sends.

The outbox is in the session's own database. A relay runs where a fleet has that database as its own; elsewhere rows
that were left behind stay.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from dramatiq.message import Message
from sqlalchemy import Connection, Engine, event, func, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from fleet import deadline
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.errors import FleetError
from fleet.handover import any_of, hand_over, settle, take, unsent
from fleet.logs import brief, get_logger
from fleet.relay import RELAYED_AFTER
from fleet.storage.tables import OutboxRow

log = get_logger(__name__)

R = TypeVar("R")

_HELD_OFF_SECONDS = 2.0  # after Redis did not answer a commit's send, the next ones are left to the relay
_UNDEFINED_TABLE = "42P01"
_KEY = "fleet_outbox"


class OutboxMissing(FleetError):
    """Raised when a message is sent on the commit of a session whose database has no outbox table."""


@dataclass
class _Written:
    """The rows that a session's transaction wrote, by broker; `committed` once the outermost one is."""

    engine: Engine
    ids: dict[FleetBroker, list[int]] = field(default_factory=dict)
    committed: bool = False


def send_on_commit(
    session: Session | scoped_session[Any], broker: FleetBroker, message: Message[R], delay: int | None
) -> Message[R]:
    """Write the message into the session's transaction; it is sent right after the commit.

    `delay` are night milliseconds from now. Raises `OutboxMissing`, `MessageTooLarge`, what a hook raises as
    `MiddlewareError`, and what the database raises.
    """
    session = _plain(session)
    made, (queue, redis_id, encoded) = broker.seal(message, delay)
    values = {
        "namespace": broker.namespace,
        "queue": queue,
        "actor": made.actor_name,
        "redis_id": redis_id,
        "message": encoded,
        "delay": delay,
        "relay_at": func.clock_timestamp() + RELAYED_AFTER,
    }
    connection = session.connection(bind_arguments={"mapper": OutboxRow})
    if connection.dialect.name != "postgresql":
        raise OutboxMissing(f"This session is on {connection.dialect.name}; an outbox stands in PostgreSQL only.")
    try:
        id = connection.execute(insert(OutboxRow).values(values).returning(OutboxRow.id)).scalar_one()
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _UNDEFINED_TABLE:
            raise
        raise OutboxMissing(
            f"The database {connection.engine.url.database!r} of this session has no table {OutboxRow.__tablename__!r}."
            " Run `fleet migrate` on it, or send with a session of the application's own database."
        ) from error
    _written(session, connection.engine).ids.setdefault(broker, []).append(id)
    return made


def _plain(session: Any) -> Session:
    found = session() if isinstance(session, scoped_session) else session
    if isinstance(found, Session):
        return found
    raise TypeError(
        f"send_on_commit takes SQLAlchemy's Session, found {type(found).__name__}. With an AsyncSession: "
        "await session.run_sync(lambda s: actor.send_on_commit(s, …))"
    )


def _written(session: Session, engine: Engine) -> _Written:
    written: _Written | None = session.info.get(_KEY)
    if written is None:
        written = session.info[_KEY] = _Written(engine)
        if not event.contains(session, "after_commit", _committed):
            event.listen(session, "after_commit", _committed)
            event.listen(session, "after_transaction_end", _ended)
    return written


def _committed(session: Session) -> None:
    """Is told of savepoints too."""
    written: _Written | None = session.info.get(_KEY)
    if written is not None and not session.in_nested_transaction():
        written.committed = True


def _ended(session: Session, transaction: SessionTransaction) -> None:
    """The outermost transaction is over, and its connection is back in the pool."""
    if transaction.parent is not None:
        return
    written: _Written | None = session.info.pop(_KEY, None)
    if written is None or not written.committed:
        return
    bound = session.get_bind(mapper=OutboxRow)
    if isinstance(bound, Connection) and bound.in_transaction():
        return  # the caller's own outer transaction is not over; the relay sends what it commits
    with deadline.shielded():
        for broker, ids in written.ids.items():
            _send(written.engine, broker, ids)


class _Outage:
    """Until when, by broker, sends are left to the relay; said once, whichever thread finds it."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """As a forked process has to: a thread that is not there may hold the lock."""
        self._until: WeakKeyDictionary[FleetBroker, float] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def holds_off(self, broker: FleetBroker) -> bool:
        with self._lock:
            return self._until.get(broker, 0.0) > clock.monotonic()

    def found(self, broker: FleetBroker, error: Exception, rows: int) -> None:
        with self._lock:
            known = broker in self._until
            self._until[broker] = clock.monotonic() + _HELD_OFF_SECONDS
        if not known:
            log.error("outbox_not_sent", error=brief(error), rows=rows, instead="the relay sends them")

    def over(self, broker: FleetBroker) -> None:
        if self.forget(broker):
            log.warning("outbox_sends_again")

    def forget(self, broker: FleetBroker) -> bool:
        """Whether there was one; for another server than the one that did not answer it means nothing."""
        with self._lock:
            return self._until.pop(broker, None) is not None


_outage = _Outage()
forget_outage = _outage.forget
os.register_at_fork(after_in_child=_outage.begin_anew)


def _send(engine: Engine, broker: FleetBroker, ids: list[int]) -> None:
    """Hand the rows to Redis, once; whatever fails, the commit stands, and the relay sends what is left."""
    if _outage.holds_off(broker):
        return
    try:
        with engine.begin() as connection:
            committed = unsent().where(OutboxRow.id == any_of(ids)).order_by(OutboxRow.id)
            done = hand_over(broker, take(connection, committed))
            settle(connection, done)
        if done.outage is not None:
            raise done.outage
    except Exception as error:
        _outage.found(broker, error, len(ids))
    else:
        _outage.over(broker)
