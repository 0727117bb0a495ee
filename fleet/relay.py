"""Sends what senders of the outbox left behind, and deletes what Redis is sure to keep.

The relay takes rows from two seconds after they were written. What Redis or this fleet will not take (a queue that no
lane serves, bytes that are no message) stays in its row with the reason, and is tried again after a pause that grows to
five minutes: a later version may know the queue. It stands behind everything that is due before it, so that it blocks
nothing, and is never deleted but by a person (`fleet outbox`).

A row that was accepted is deleted 15 s later, when no failover can take back what Redis accepted; if Redis no longer
knows its id by then, the message is sent again, under the same id (`fleet.handover`). Where nobody relayed for a week
that says nothing any more, since ids are known for no longer: such a row is deleted, and said.

Not guaranteed: order, where more than one relays; a message that a failover forgot, after such a week. On failure: a
Redis that does not answer ends a pass with `NotAccepted` or redis-py's error, after what it took was written down; the
next pass goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Engine, Select, delete, func, select, update

from fleet.broker import FleetBroker, keys
from fleet.broker.broker import MARKED
from fleet.broker.sealing import CHUNK, LARGEST_MESSAGE
from fleet.handover import LONGEST_PAUSE, HandedOver, Row, any_of, hand_over, settle, take, unsent
from fleet.logs import get_logger
from fleet.payloads import as_it_lies
from fleet.storage.tables import OutboxRow

log = get_logger(__name__)

RELAYED_AFTER = timedelta(seconds=2)  # real time: a sender that lives has sent long before
_LAPSED_AFTER = MARKED - timedelta(hours=1)  # clocks of two servers


@dataclass(frozen=True)
class Relayed:
    """What a pass did with rows: `sent`, `refused`, `forgotten` by Redis and so to be sent again, `deleted`."""

    sent: int = 0
    refused: int = 0
    forgotten: int = 0
    deleted: int = 0


def relay(
    engine: Engine, broker: FleetBroker, limit: int = 100_000, *, only: ColumnElement[bool] | None = None
) -> Relayed:
    """Make a pass over what is due, oldest first, at most so many rows of each kind, perhaps `only` some.

    Any number may run at once. Raises `NotAccepted` or `RedisError` when Redis does not answer, and what the database
    raises.
    """
    forgotten = deleted = sent = refused = 0
    waits = unsent() if only is None else unsent().where(only)
    while forgotten + deleted < limit and (found := _confirm(engine, broker, min(CHUNK, limit - forgotten - deleted))):
        forgotten, deleted = forgotten + found[0], deleted + found[1]
    while sent + refused < limit:
        with engine.begin() as connection:
            rows = take(connection, _due(waits, broker, min(CHUNK, limit - sent - refused)))
            unfit = {row.id: reason for row in rows if (reason := _unfit(broker, row)) is not None}
            done = hand_over(broker, [row for row in rows if row.id not in unfit])
            done.refused.update(unfit)
            settle(connection, done)
        _say(rows, done)
        sent, refused = sent + len(done.accepted), refused + len(done.refused)
        if done.outage is not None:
            raise done.outage
        if not rows:
            break
    return Relayed(sent, refused, forgotten, deleted)


def _due(which: Select[*tuple[Any, ...]], broker: FleetBroker, limit: int) -> Select[*tuple[Any, ...]]:
    return (
        which.where(OutboxRow.namespace == broker.namespace, OutboxRow.relay_at <= func.clock_timestamp())
        .order_by(OutboxRow.relay_at, OutboxRow.id)
        .limit(limit)
    )


def _confirm(engine: Engine, broker: FleetBroker, limit: int) -> tuple[int, int] | None:
    """Delete accepted rows whose time is up, but have those sent again that Redis forgot; how many of each, if any."""
    marks = keys.outbox(broker.namespace)
    lapsed = OutboxRow.accepted_at < func.clock_timestamp() - _LAPSED_AFTER
    accepted = select(OutboxRow.id, OutboxRow.redis_id, lapsed).where(OutboxRow.accepted_at.is_not(None))
    with engine.begin() as connection:
        rows = connection.execute(_due(accepted, broker, limit).with_for_update(skip_locked=True)).all()
        if not rows:
            return None
        scores: Any = broker.client.zmscore(marks, [redis_id for _, redis_id, _ in rows])
        seen = [(*row, score is not None) for row, score in zip(rows, scores, strict=True)]
        kept = [(id, redis_id) for id, redis_id, lapsed, known in seen if known or lapsed]
        forgotten = [id for id, _, lapsed, known in seen if not known and not lapsed]
        connection.execute(delete(OutboxRow).where(OutboxRow.id == any_of([id for id, _ in kept])))
        if unknown := sum(lapsed and not known for _, _, lapsed, known in seen):
            log.warning("outbox_not_confirmed", rows=unknown, accepted_before=str(MARKED), instead="taken for sent")
        if forgotten:
            again = {"accepted_at": None, "relay_at": func.clock_timestamp()}
            connection.execute(update(OutboxRow).where(OutboxRow.id == any_of(forgotten)).values(again))
            log.error("outbox_forgotten", rows=len(forgotten), by="Redis", instead="they are sent again")
    if kept:
        broker.client.zrem(marks, *(redis_id for _, redis_id in kept))
    return len(forgotten), len(kept)


def _unfit(broker: FleetBroker, row: Row) -> str | None:
    """Why a row should not be given to Redis by this fleet, as it is today."""
    if len(row.message) > LARGEST_MESSAGE:
        return f"The message is {len(row.message):,} bytes; at most {LARGEST_MESSAGE:,} are taken."
    if broker.lanes and row.queue not in broker.lanes:
        return f"No lane of this fleet serves the queue {row.queue!r}; deploy one that does, or discard the row."
    try:
        decoded = as_it_lies(row.message)  # it goes on as it is, sealed or not
        if decoded.options["redis_message_id"] != row.redis_id:
            return f"The message is sealed under another id than its row's, {row.redis_id}."
    except Exception as error:  # what an encoder of another version wrote may break this one's in any way
        return f"The message cannot be read by this version: {error!r}"[:500]
    return None


def _say(rows: Sequence[Row], done: HandedOver) -> None:
    """One line for what could not be sent the first time; what is tried again says nothing new."""
    new = [row for row in rows if row.id in done.refused and not row.attempts]
    if new:
        first = new[0]
        log.error(
            "outbox_refused",
            rows=len(new),
            first=first.id,
            actor=first.actor,
            queue=first.queue,
            reason=done.refused[first.id],
            tried_again_within=str(LONGEST_PAUSE),
        )
