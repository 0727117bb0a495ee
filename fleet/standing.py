"""What stands in the outbox: how much, how old, and what could not be sent; and what a person may do with that.

A row that could not be sent is tried again by itself (`fleet.relay`). A person may have it tried now, or drop it: only
what was refused can be dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Engine, delete, func, select, update

from fleet.broker import FleetBroker
from fleet.handover import any_of
from fleet.storage.tables import OutboxRow

OVERDUE_AFTER = timedelta(seconds=10)  # real time; a relay that works has sent it by then
_SHOWN = (  # in the order of `Waiting`
    OutboxRow.id,
    OutboxRow.written_at,
    OutboxRow.queue,
    OutboxRow.actor,
    OutboxRow.attempts,
    OutboxRow.refused,
)


@dataclass(frozen=True)
class Standing:
    """Rows that wait, among them those that could not be sent and those that no relay has tried within 10 s; the age of
    the oldest; and rows that were accepted and are kept for a while.
    """

    waiting: int
    refused: int
    overdue: int
    oldest: timedelta
    accepted: int


@dataclass(frozen=True)
class Waiting:
    """A row that waits; `refused` is why it could not be sent the last of `attempts` times."""

    id: int
    written_at: datetime
    queue: str
    actor: str
    attempts: int
    refused: str | None


def standing(engine: Engine, broker: FleetBroker) -> Standing:
    """Count what stands in the outbox."""
    not_accepted = OutboxRow.accepted_at.is_(None)
    oldest = func.clock_timestamp() - func.min(OutboxRow.written_at).filter(not_accepted)
    asked = select(
        func.count().filter(not_accepted),
        func.count(OutboxRow.refused),
        func.count().filter(not_accepted & overdue()),
        func.coalesce(oldest, timedelta(0)),
        func.count(OutboxRow.accepted_at),
    )
    with engine.connect() as connection:
        return Standing(*connection.execute(asked.where(OutboxRow.namespace == broker.namespace)).one())


def waiting(engine: Engine, broker: FleetBroker, *, refused: bool, most: int) -> list[Waiting]:
    """Rows that wait, oldest first; only those that could not be sent if `refused`."""
    asked = select(*_SHOWN).where(waits(broker))
    if refused:
        asked = asked.where(OutboxRow.refused.is_not(None))
    with engine.connect() as connection:
        return [Waiting(*found) for found in connection.execute(asked.order_by(OutboxRow.id).limit(most))]


def try_again(engine: Engine, broker: FleetBroker, ids: Sequence[int]) -> int:
    """Have the relay try rows in its next pass; returns how many."""
    now = {"relay_at": func.clock_timestamp()}
    with engine.begin() as connection:
        these = waits(broker) & (OutboxRow.id == any_of(ids))
        return connection.execute(update(OutboxRow).where(these).values(now)).rowcount


def discard(engine: Engine, broker: FleetBroker, ids: Sequence[int], *, really: bool) -> list[Waiting]:
    """Drop rows that could not be sent; returns those that were, or would be, dropped."""
    these = waits(broker) & (OutboxRow.id == any_of(ids)) & OutboxRow.refused.is_not(None)
    with engine.begin() as connection:
        asked = delete(OutboxRow).where(these).returning(*_SHOWN) if really else select(*_SHOWN).where(these)
        return [Waiting(*found) for found in connection.execute(asked)]


def waits(broker: FleetBroker) -> ColumnElement[bool]:
    """Rows of the broker's fleet that Redis has not accepted."""
    return (OutboxRow.namespace == broker.namespace) & OutboxRow.accepted_at.is_(None)


def overdue() -> ColumnElement[bool]:
    """Rows that nobody has tried to send, and somebody should have."""
    return OutboxRow.refused.is_(None) & (OutboxRow.written_at < func.clock_timestamp() - OVERDUE_AFTER)
