"""Rows with a lease whose worker or whose message is gone: counted, found by the page, and moved one at a time.

What may be wrong with a row and what is done about it is a `Move`; a chore of a janitor is a model with its moves. A
row is moved in one UPDATE that asks again whether it is still stuck and passes over a row that somebody else has
locked, so two passes at once move it once and live work is left alone. If its message is to be sent, it goes out with
the commit (`fleet.outbox`): a process that is killed in between, or a Redis that is away, leaves the message to the
relay, and a commit that fails sends none.

Not guaranteed: that the message of a moved row waits nowhere else as well. On failure a row stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from sqlalchemy import ColumnElement, SQLColumnExpression, and_, func, or_, select, update
from sqlalchemy.orm import Session

from fleet.actor import FleetActor
from fleet.app import process_broker
from fleet.janitor import Measured, Stuck
from fleet.storage.engine import session
from fleet.storage.keyset import Keyset
from fleet.storage.leases import RUNNING, Lease

WITHOUT_LEASE_AT_MOST = timedelta(hours=2)  # longer than any job's hard budget: a worker from before leases may run it

_UNSYNCED = {"synchronize_session": False}


def lapsed(model: type[Lease]) -> ColumnElement[bool]:
    """A row that says running though its lease is over, by the database's clock."""
    return and_(model.status == RUNNING, model.lease_until < func.now())


def without_lease(model: type[Lease]) -> ColumnElement[bool]:
    """A row that has said running for long without ever having had a lease: from before there were any."""
    long_ago = func.now() - WITHOUT_LEASE_AT_MOST
    return and_(
        model.status == RUNNING,
        model.lease_until.is_(None),
        or_(model.started_at.is_(None), model.started_at < long_ago),
    )


@dataclass(frozen=True)
class Move:
    """What is wrong with a row (`when`), since when, and what it becomes; `plan` says that for a person.

    `send` names the actor that gets the row's id as its argument. `then` is called with the row's id in the
    transaction that moved it; what it raises leaves the row as it was.
    """

    plan: str
    when: ColumnElement[bool]
    since: SQLColumnExpression[Any]
    values: Mapping[str, Any]
    send: str | None = None
    then: Callable[[Session, Any], None] | None = None


class StuckRows:
    """A chore: the rows of a model with a lease that are `seen`, and the moves that free them, no two for one row."""

    def __init__(self, model: type[Any], moves: Sequence[Move], *, seen: ColumnElement[bool]) -> None:
        self._model, self._moves, self._seen = model, moves, seen

    def measure(self) -> Measured:
        """Raises what the database raises."""
        stuck = or_(*(move.when for move in self._moves))
        live = and_(self._model.status == RUNNING, ~func.coalesce(stuck, False))
        ages = [func.max(func.now() - move.since).filter(move.when) for move in self._moves]
        counted = select(func.count(), func.count().filter(stuck), func.count().filter(live), *ages)
        with session() as s:
            scanned, stuck_rows, live_rows, *oldest = s.execute(counted.where(self._seen)).one()
        return Measured(scanned, stuck_rows, live_rows, max(filter(None, oldest), default=None))

    def find(self) -> Iterator[Stuck]:
        """By move, then by id; each page is read in a transaction of its own."""
        for number, move in enumerate(self._moves):
            row = func.json_build_array(self._model.id, func.extract("epoch", func.now() - move.since))
            for page in Keyset(select(row).where(move.when), by=self._model.id).pages():
                for row_id, age in page:
                    seconds = None if age is None else timedelta(seconds=float(age))
                    yield Stuck((number, row_id), f"{self._model.__name__} {row_id}", seconds, move.plan)

    def mend(self, stuck: Stuck) -> int:
        """Raises what the database raises, and `OutboxMissing` where it has no outbox."""
        number, row_id = stuck.key
        move = self._moves[number]
        with session() as s:
            if not self._moved(s, move, row_id):
                return 0
            if move.then is not None:
                move.then(s, row_id)
            if move.send is not None:  # without the expiry of the pass that sends it
                actor = cast("FleetActor[[Any], Any]", process_broker().get_actor(move.send))
                actor.send_with_options_on_commit(s, args=(row_id,), expires_at=None)
        return 1

    def _moved(self, s: Session, move: Move, row_id: Any) -> bool:
        model = self._model
        free = select(model.id).where(model.id == row_id, move.when).with_for_update(skip_locked=True)
        moved = update(model).where(model.id.in_(free)).values(**move.values).returning(model.id)
        return s.execute(moved, execution_options=_UNSYNCED).one_or_none() is not None
