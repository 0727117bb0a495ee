"""Hands rows of the outbox to Redis; the sender after its commit and the relay do it alike.

A row is locked (`FOR UPDATE SKIP LOCKED`), accepted by Redis under the id it was written with, and marked as accepted.
Nobody waits for anybody: what one holds, the others pass over. Redis marks the id in the script that accepts it, so
that a row which is handed over again, after a crash before its own mark was committed, changes nothing, even if its
message has run and ended. An accepted row is kept for longer than Redis may forget what it accepted (`KEPT`); then the
relay deletes it if the id is still marked, and sends it again if it is not.

Not guaranteed: once. A Redis that forgot an id, in a failover, may have let its message run before. On failure: Redis
away is an outage and refuses nothing; what it refuses for itself is told a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any

import redis
from sqlalchemy import BigInteger, Connection, Select, any_, func, literal, select, update
from sqlalchemy.dialects.postgresql import ARRAY

from fleet.broker import FleetBroker
from fleet.broker.broker import NotAccepted
from fleet.broker.sealing import chunks
from fleet.clock import clock
from fleet.payloads import as_it_lies
from fleet.storage.tables import OutboxRow

# Real time. `appendfsync everysec` may lose two seconds, a replica lags for ten (`min-replicas-max-lag`) by default.
KEPT = timedelta(seconds=15)
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


def unsent() -> Select[*tuple[Any, ...]]:
    """Rows that Redis has not accepted, as `take` wants them."""
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
    ).where(OutboxRow.accepted_at.is_(None))


def any_of(ids: Sequence[int]) -> Any:
    """For `OutboxRow.id ==`: one parameter, however many ids."""
    return any_(literal(list(ids), ARRAY(BigInteger)))


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


def hand_over(broker: FleetBroker, rows: Sequence[Row]) -> HandedOver:
    """Have Redis accept rows, in their order but for those that are delayed; each call is tried once."""
    done = HandedOver()
    for left, group in _calls(rows):
        try:
            _accept(broker, group, left)
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
    for chunk in chunks((row for row in rows if row.left is None), attrgetter("message")):
        yield None, chunk
    delayed = sorted((row for row in rows if row.left is not None), key=_slice)
    for end, group in groupby(delayed, key=_slice):
        for chunk in chunks(group, attrgetter("message")):
            yield end * _SPREAD_MS, chunk


def _slice(row: Row) -> int:
    return -(-(row.left or 0) // _SPREAD_MS)


def _one_by_one(broker: FleetBroker, rows: Iterable[Row], left: int | None, done: HandedOver) -> Iterator[Row]:
    """Those of refused rows that Redis takes when it is asked for each alone."""
    for row in rows:
        try:
            _accept(broker, [row], left)
        except NotAccepted as error:
            if _concerns_all(error):
                done.outage = error
                return
            done.refused[row.id] = str(error)
        else:
            yield row


def _accept(broker: FleetBroker, rows: Sequence[Row], left: int | None) -> None:
    broker.accept([(row.queue, row.redis_id, row.message) for row in rows], left, marked=True, pauses=())


_SERVER_STATES = ("BUSY", "LOADING", "MISCONF", "NOREPLICAS", "MASTERDOWN", "READONLY", "OOM", "ACL failure")
_OF_ALL = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.ReadOnlyError,
    redis.OutOfMemoryError,
    redis.exceptions.NoPermissionError,
)


def _concerns_all(error: NotAccepted) -> bool:
    """Whether Redis would take nothing now, whatever it is; otherwise it refused these messages."""
    cause = error.__cause__
    if isinstance(cause, _OF_ALL) or not isinstance(cause, redis.ResponseError):
        return True
    return any(state in str(cause) for state in _SERVER_STATES)


def _call_after_hooks(broker: FleetBroker, rows: Iterable[Row]) -> None:
    if broker._hooks_of("after_enqueue"):
        for row in rows:
            broker.emit_after("enqueue", as_it_lies(row.message), row.delay)


def settle(connection: Connection, done: HandedOver) -> None:
    """Write down what was accepted, and why the others were not."""
    now = func.clock_timestamp()
    if done.accepted:
        accepted = {"accepted_at": now, "relay_at": now + KEPT, "refused": None}
        connection.execute(update(OutboxRow).where(OutboxRow.id == any_of(done.accepted)).values(accepted))
    by_reason: dict[str, list[int]] = {}
    for id, reason in done.refused.items():
        by_reason.setdefault(reason, []).append(id)
    for reason, ids in by_reason.items():
        pause = func.least(_FIRST_PAUSE * func.power(2, func.least(OutboxRow.attempts, 10)), LONGEST_PAUSE)
        parked = {"attempts": OutboxRow.attempts + 1, "refused": reason, "relay_at": now + pause}
        connection.execute(update(OutboxRow).where(OutboxRow.id == any_of(ids)).values(parked))
