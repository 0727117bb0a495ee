"""Which message runs a slot: one row a (entry, slot), claimed before the body by the first message that comes.

Fleets of other namespaces may share the table: column `entry` says whose entry it is (`recorded_as`).

A claim holds the nonce that its fire drew, since the message id, derived from entry and slot, cannot tell two fires
apart. The same nonce passes: it is the same message, delivered or tried again. A message of another fire is turned away
while the slot is live under a lease, and for good once it ended; after the lease has lapsed it takes the slot over.
docs/slots.md draws it.

A claim and an end are one statement each, which commits by itself: the row decides between two that come at once, and a
worker that stops half-way keeps no lock. An end is written only for the delivery that started last, so that a worker
which was taken for dead, and whose message runs elsewhere, changes nothing. Leases are real time, by the database's
clock.

Not guaranteed: that a message runs its body once. It may be delivered twice, and then passes twice. Nor the end of a
slot whose message a supervisor ended (hard budget, poison): it stays live until its lease lapses.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from urllib.parse import quote

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    and_,
    case,
    delete,
    func,
    literal,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy import exc as errors
from sqlalchemy.dialects.postgresql import insert

from fleet.errors import FleetError
from fleet.settings import DEFAULT_NAMESPACE
from fleet.storage.engine import database
from fleet.storage.tables import LIVE_STATES, Slot, SlotState

SLACK = timedelta(minutes=1)  # over a job's hard budget: for its supervisor to act, and for clocks that differ
KEPT_FOR = timedelta(days=14)  # as long as a dead letter, which may be requeued under the same nonce
_FORGOTTEN_A_CALL = 1_000
# What passes, or what somebody mends while messages wait: no connection, no table, no right, a standby.
_AWAY = (errors.OperationalError, errors.InterfaceError, errors.InternalError, errors.TimeoutError)


class SlotsUnanswered(FleetError):
    """Raised when PostgreSQL does not answer for a slot, or not to this user or on this table."""


@dataclass(frozen=True)
class OfSlot:
    """A message of a fleet that stands for a slot, and the nonce of its fire."""

    namespace: str
    entry: str
    slot: datetime
    nonce: str
    message_id: str


@dataclass(frozen=True)
class Held:
    """The slot is this delivery's until its `token` is replaced. `how` it came to it."""

    of: OfSlot
    token: str
    how: Literal["first", "again", "taken_over"]


@dataclass(frozen=True)
class Refused:
    """Another fire's message has the slot: it `ended` so, or holds it for at most `left` (real; None if ended)."""

    state: SlotState
    left: timedelta | None

    @property
    def ended(self) -> bool:
        return self.left is None


def recorded_as(namespace: str, entry: str) -> str:
    """How column `entry` names an entry of a fleet: no two fleets' alike, whatever namespaces and entries are called.

    It is `namespace/entry`, with the namespace percent-encoded; of the default namespace the entry alone, as it was
    before fleets could share the table, unless it holds a slash and could be another fleet's.
    """
    if namespace == DEFAULT_NAMESPACE and "/" not in entry:
        return entry
    return f"{quote(namespace, safe=':')}/{entry}"


def entry_of(namespace: str, recorded: str) -> str | None:
    """The fleet's entry that a row names; None if the row is another fleet's."""
    owner, slash, rest = recorded.partition("/")
    entry = rest if slash else owner
    return entry if recorded_as(namespace, entry) == recorded else None


def claim(of: OfSlot, *, lease: timedelta) -> Held | Refused:
    """Take a slot for a delivery of a message, or learn why not.

    Raises `SlotsUnanswered`; the claim may have been made then, and the same nonce passes when it asks again.
    """
    token = uuid.uuid4().hex
    with _at_once() as connection:
        row = connection.execute(_claiming(of, token, lease)).one()
    if row.token != token:
        live = row.state in LIVE_STATES
        return Refused(SlotState(row.state), timedelta(seconds=max(0.0, float(row.left))) if live else None)
    return Held(of, token, "again" if not row.fresh else "first" if row.fires == 1 else "taken_over")


def _claiming(of: OfSlot, token: str, lease: timedelta) -> Executable:
    started = {"state": SlotState.RUNNING, "token": token, "lease_until": func.now() + lease}
    first = insert(Slot).values(
        **_named(of), **started, claimed_at=func.now(), started_at=func.now(), fires=1, starts=1, refused=0
    )
    mine = Slot.nonce == of.nonce
    lapsed = and_(Slot.state.in_(LIVE_STATES), Slot.lease_until < func.now())
    changes = {
        **started,
        "nonce": of.nonce,
        "message_id": of.message_id,
        "claimed_at": case((mine, Slot.claimed_at), else_=func.now()),
        "started_at": func.now(),
        "ended_at": None,
        "fires": Slot.fires + case((mine, 0), else_=1),
        "starts": Slot.starts + 1,
    }
    return first.on_conflict_do_update(
        index_elements=["entry", "slot"], set_=_only(or_(mine, lapsed), of, changes)
    ).returning(
        Slot.token,
        Slot.state,
        Slot.fires,
        (Slot.claimed_at == Slot.started_at).label("fresh"),
        func.extract("epoch", Slot.lease_until - func.now()).label("left"),
    )


def end(held: Held, state: SlotState) -> bool:
    """Write how a held slot ended; False, and nothing changed, if another delivery started it meanwhile.

    Raises `SlotsUnanswered`; the end may have been written then, and may be written again.
    """
    return _change(held, {"state": state, "ended_at": func.now(), "lease_until": None})


def wait(held: Held, *, lease: timedelta) -> bool:
    """Note that the message of a held slot comes again, within `lease`; False if another delivery started it.

    Raises as `end` does.
    """
    return _change(held, {"state": SlotState.WAITING, "lease_until": func.now() + lease})


def end_unclaimed(of: OfSlot, state: SlotState) -> bool:
    """Write how a slot ended whose message was dropped before it could claim it, if no other fire's message has it.

    Raises as `end` does.
    """
    ended = {"state": state, "token": "", "ended_at": func.now(), "lease_until": None}
    first = insert(Slot).values(
        **_named(of), **ended, claimed_at=func.now(), started_at=func.now(), fires=1, starts=0, refused=0
    )
    mine = and_(Slot.nonce == of.nonce, Slot.state.in_(LIVE_STATES))
    _count(first.on_conflict_do_update(index_elements=["entry", "slot"], set_=_only(mine, of, ended)))
    return True


def forget_old(kept_for: timedelta = KEPT_FOR, most: int = _FORGOTTEN_A_CALL) -> int:
    """Delete the slots that were claimed longer ago and are not held, any fleet's, at most so many; returns how many.

    Raises `SlotsUnanswered`.
    """
    old = (
        select(Slot.entry, Slot.slot)
        .where(Slot.claimed_at < func.now() - kept_for, func.coalesce(Slot.lease_until, Slot.claimed_at) < func.now())
        .limit(most)
        .with_for_update(skip_locked=True)
        .cte("old")  # chosen once: a subquery may be asked again for each row, and every time of other rows
    )
    return _count(delete(Slot).where(tuple_(Slot.entry, Slot.slot).in_(select(old.c.entry, old.c.slot))))


def _named(of: OfSlot) -> dict[str, Any]:
    entry = recorded_as(of.namespace, of.entry)
    return {"entry": entry, "slot": of.slot, "nonce": of.nonce, "message_id": of.message_id}


def _only(free: ColumnElement[bool], of: OfSlot, changes: Mapping[str, Any]) -> dict[str, Any]:
    """These changes to a row that is `free`; to another only that it turned a message of another fire away.

    Conditions of the columns and no `WHERE`, so that the row comes back also where nothing was to be had.
    """
    columns = Slot.__table__.c
    told = {name: case((free, _sql(value, columns[name])), else_=columns[name]) for name, value in changes.items()}
    refused = and_(Slot.nonce != of.nonce, ~free)
    return {**told, "refused": Slot.refused + case((refused, 1), else_=0)}


def _sql(value: Any, column: ColumnElement[Any]) -> ColumnElement[Any]:
    return value if isinstance(value, ColumnElement) else literal(value, column.type)


def _change(held: Held, values: dict[str, Any]) -> bool:
    of = held.of
    statement = (
        update(Slot)
        .where(Slot.entry == recorded_as(of.namespace, of.entry), Slot.slot == of.slot)
        .where(Slot.nonce == of.nonce, Slot.token == held.token, Slot.state == SlotState.RUNNING)
        .values(**values)
    )
    return _count(statement) == 1


def _count(statement: Executable) -> int:
    """How many rows a statement changed."""
    with _at_once() as connection:
        return int(connection.execute(statement).rowcount)


@contextmanager
def _at_once() -> Iterator[Connection]:
    """A connection on which each statement commits by itself."""
    try:
        with database().connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")
    except (*_AWAY, errors.ProgrammingError) as error:
        if isinstance(error, errors.ProgrammingError) and not _of_the_server(error):
            raise
        raise SlotsUnanswered(f"PostgreSQL does not answer for slots: {str(error.args[0])[:300]}") from error


def _of_the_server(error: errors.ProgrammingError) -> bool:
    """Whether PostgreSQL said it, or the URL leads to none: what psycopg cannot write of a message never passes."""
    return getattr(error.orig, "sqlstate", None) is not None or error.statement is None
