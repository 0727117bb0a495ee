"""Hands rows of the outbox to Redis: to the sender right after its commit, and to the relay what a sender left behind.

A row is locked (`FOR UPDATE SKIP LOCKED`), accepted by Redis under the id it was written with, and deleted. Nobody
waits for anybody: what one holds, the others pass over. The relay takes rows from two seconds after they were written.

What Redis or this fleet will not take (a queue that no lane serves, bytes that are no message) stays in its row with
the reason, and is tried again after a pause that grows to five minutes: a later version may know the queue. It stands
behind everything that is due before it, so that it blocks nothing, and is never deleted but by a person.

Not guaranteed: once. A process that dies after Redis accepted a row and before its deletion is committed leaves the row
to the next: while the message waits or runs Redis knows its id and changes nothing, but one that has ended by then runs
a second time. On failure: Redis away ends a pass with `NotAccepted`, after what it took was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import Any

import redis
from dramatiq.message import Message
from sqlalchemy import BigInteger, Connection, Engine, Select, any_, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import ARRAY

from fleet.broker import FleetBroker
from fleet.broker.broker import CHUNK, LARGEST_MESSAGE, NotAccepted
from fleet.clock import clock
from fleet.logs import get_logger
from fleet.storage.tables import OutboxRow

log = get_logger(__name__)

RELAYED_AFTER = timedelta(seconds=2)  # real time: a sender that lives has sent long before
LONGEST_PAUSE = timedelta(minutes=5)
_FIRST_PAUSE = timedelta(seconds=2)
_SPREAD_MS = 50  # delays that end within it are handed over in one call


@dataclass(frozen=True)
class Row:
    """A locked row; `left` are the night milliseconds that are left of its delay, None if it is due."""

    id: int
    queue: str
    actor: str
    redis_id: str
    message: bytes
    delay: int | None
    left: int | None
    attempts: int


@dataclass
class HandedOver:
    """What became of rows: `accepted` by Redis, `refused` with a reason; the others wait for an `outage` to end."""

    accepted: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    outage: NotAccepted | None = None


@dataclass(frozen=True)
class Relayed:
    """What a pass did: rows that Redis took, and rows that could not be sent."""

    sent: int = 0
    refused: int = 0


@dataclass(frozen=True)
class Standing:
    """What stands in the outbox: rows that wait to be sent, those among them that could not be, the oldest's age."""

    waiting: int
    refused: int
    oldest: timedelta


def relay(engine: Engine, broker: FleetBroker, limit: int = 100_000) -> Relayed:
    """Send what senders left behind, oldest first, at most so many rows; returns when nothing is due.

    Any number may run at once. Raises `NotAccepted` when Redis does not take what it should, and what the database
    raises; the next pass goes on.
    """
    sent = refused = 0
    while sent + refused < limit:
        with engine.begin() as connection:
            rows = take(connection, _due(broker, min(CHUNK, limit - sent - refused)))
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
    return Relayed(sent, refused)


def standing(engine: Engine, broker: FleetBroker) -> Standing:
    """Count what stands in the outbox."""
    with engine.connect() as connection:
        asked = select(
            func.count(),
            func.count(OutboxRow.refused),
            func.coalesce(func.clock_timestamp() - func.min(OutboxRow.written_at), timedelta(0)),
        )
        waiting, refused, oldest = connection.execute(asked.where(OutboxRow.namespace == broker.namespace)).one()
    return Standing(waiting, refused, oldest)


def _due(broker: FleetBroker, limit: int) -> Select[*tuple[Any, ...]]:
    return (
        _columns()
        .where(OutboxRow.namespace == broker.namespace, OutboxRow.relay_at <= func.clock_timestamp())
        .order_by(OutboxRow.relay_at, OutboxRow.id)
        .limit(limit)
    )


def written(ids: Sequence[int]) -> Select[*tuple[Any, ...]]:
    """The rows of these ids that are in the database, in the order they were written."""
    return _columns().where(OutboxRow.id == _any(ids)).order_by(OutboxRow.id)


def _columns() -> Select[*tuple[Any, ...]]:
    age_ms = func.extract("epoch", func.clock_timestamp() - OutboxRow.written_at) * 1000
    return select(
        OutboxRow.id,
        OutboxRow.queue,
        OutboxRow.actor,
        OutboxRow.redis_id,
        OutboxRow.message,
        OutboxRow.delay,
        age_ms,
        OutboxRow.attempts,
    )


def take(connection: Connection, which: Select[*tuple[Any, ...]]) -> list[Row]:
    """Lock the rows of a selection that nobody else holds."""
    found = connection.execute(which.with_for_update(skip_locked=True))
    return [
        Row(id, queue, actor, redis_id, bytes(message), delay, _left(delay, float(age_ms)), attempts)
        for id, queue, actor, redis_id, message, delay, age_ms, attempts in found
    ]


def _left(delay: int | None, age_ms: float) -> int | None:
    left = 0 if delay is None else int(delay - age_ms * clock.rate)
    return left if left > 0 else None


def hand_over(broker: FleetBroker, rows: Sequence[Row], *, pauses: Sequence[float] = ()) -> HandedOver:
    """Have Redis accept rows, in their order but for those that are delayed; raises nothing but what a hook raises."""
    done = HandedOver()
    for left, group in _calls(rows):
        try:
            broker.accept([_sealed(row) for row in group], left, pauses=pauses)
            accepted = group
        except NotAccepted as error:
            if _concerns_all(error):
                done.outage = error
                return done
            accepted = list(_one_by_one(broker, group, left, done))
        done.accepted += [row.id for row in accepted]
        _call_after_hooks(broker, accepted)
        if done.outage is not None:
            return done
    return done


def _calls(rows: Sequence[Row]) -> Iterator[tuple[int | None, list[Row]]]:
    """What may be asked for in one call each, with the delay that is left."""
    due = [row for row in rows if row.left is None]
    for start in range(0, len(due), CHUNK):
        yield None, due[start : start + CHUNK]
    delayed = sorted((row for row in rows if row.left is not None), key=_slice)
    for end, group in groupby(delayed, key=_slice):
        chunk = list(group)
        for start in range(0, len(chunk), CHUNK):
            yield end * _SPREAD_MS, chunk[start : start + CHUNK]


def _slice(row: Row) -> int:
    return -(-(row.left or 0) // _SPREAD_MS)


def _one_by_one(broker: FleetBroker, rows: Iterable[Row], left: int | None, done: HandedOver) -> Iterator[Row]:
    """Those of refused rows that Redis takes when it is asked for each alone."""
    for row in rows:
        try:
            broker.accept([_sealed(row)], left, pauses=())
        except NotAccepted as error:
            if _concerns_all(error):
                done.outage = error
                return
            done.refused[row.id] = str(error)
        else:
            yield row


def _sealed(row: Row) -> tuple[str, str, bytes]:
    return row.queue, row.redis_id, row.message


_SERVER_STATES = ("BUSY", "LOADING", "MISCONF", "NOREPLICAS", "MASTERDOWN", "READONLY", "OOM", "CLUSTERDOWN")


def _concerns_all(error: NotAccepted) -> bool:
    """Whether Redis would take nothing now, whatever it is; otherwise it refused these messages."""
    cause = error.__cause__
    of_all = (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError, redis.OutOfMemoryError)
    if isinstance(cause, (*of_all, redis.exceptions.NoPermissionError)) or not isinstance(cause, redis.ResponseError):
        return True
    return any(state in str(cause) for state in (*_SERVER_STATES, "ACL failure"))


def _call_after_hooks(broker: FleetBroker, rows: Iterable[Row]) -> None:
    if broker._hooks_of("after_enqueue"):
        for row in rows:
            broker.emit_after("enqueue", Message.decode(row.message), row.delay)


def _unfit(broker: FleetBroker, row: Row) -> str | None:
    """Why a row should not be given to Redis by this fleet, as it is today."""
    if len(row.message) > LARGEST_MESSAGE:
        return f"The message is {len(row.message):,} bytes; at most {LARGEST_MESSAGE:,} are taken."
    if broker.lanes and row.queue not in broker.lanes:
        return f"No lane of this fleet serves the queue {row.queue!r}; deploy one that does, or discard the row."
    try:
        decoded = Message.decode(row.message)
        if decoded.options["redis_message_id"] != row.redis_id:
            return f"The message is sealed under another id than its row's, {row.redis_id}."
    except Exception as error:  # what an encoder of another version wrote may break this one's in any way
        return f"The message cannot be read by this version: {error!r}"[:500]
    return None


def settle(connection: Connection, done: HandedOver) -> None:
    """Delete what was accepted, and write down why the others were not."""
    if done.accepted:
        connection.execute(delete(OutboxRow).where(OutboxRow.id == _any(done.accepted)))
    by_reason: dict[str, list[int]] = {}
    for id, reason in done.refused.items():
        by_reason.setdefault(reason, []).append(id)
    for reason, ids in by_reason.items():
        pause = func.least(_FIRST_PAUSE * func.power(2, func.least(OutboxRow.attempts, 10)), LONGEST_PAUSE)
        connection.execute(
            update(OutboxRow)
            .where(OutboxRow.id == _any(ids))
            .values(attempts=OutboxRow.attempts + 1, refused=reason, relay_at=func.clock_timestamp() + pause)
        )


def _any(ids: Sequence[int]) -> Any:
    return any_(literal(list(ids), ARRAY(BigInteger)))


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
