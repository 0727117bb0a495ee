"""Who did what to a fleet, why, and how it was before and after: one row an action of a person's.

The row stands in the table `fleet_audit` where there is a database, for good; else in a stream of Redis, of which the
last 10,000 are kept. A database that does not take it (away, or not migrated) is said in the log with the row itself,
and the row goes to the stream; `read` shows both.

The row is written after the act (`noting`). Of an act that broke off half-way it says how far that came; where Redis's
reply to it was lost, that it was tried and its end is not known.

Not guaranteed: a row of an action whose process ended between the act and its note, or whose reply was lost where there
is no database and Redis does not take the row either. Before and after are sentences for a person, of counts and ids;
arguments of messages do not belong there.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import redis

from fleet import wire
from fleet.broker import keys
from fleet.clock import clock
from fleet.logs import get_logger

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from fleet.broker import FleetBroker

log = get_logger(__name__)

STREAM_LENGTH = 10_000
_LONGEST = 2_000  # characters of one field
_LOST = (redis.TimeoutError, redis.ConnectionError)  # which leave open whether Redis did what it was asked


@dataclass(frozen=True)
class Row:
    """An action; `at` is real time, `before` and `after` are None where there was nothing to say."""

    at: datetime
    who: str
    what: str
    subject: str
    because: str
    before: str | None = None
    after: str | None = None


@dataclass
class Note:
    """What an act says of itself: how it was, and what was done; where it takes steps, what was done so far."""

    before: str | None = None
    after: str | None = None


@contextmanager
def noting(broker: FleetBroker, *, who: str, what: str, subject: str, because: str) -> Iterator[Note]:
    """Write down what its block does, when that has ended; raises what the block raises, and what `note` raises.

    An act that was refused leaves no row: one that fails by something else than a lost reply before it has told what
    it did.
    """
    told, write = Note(), partial(note, broker, who=who, what=what, subject=subject, because=because)
    try:
        yield told
    except BaseException as error:  # Ctrl-C too
        if (after := _broken_off(told.after, error)) is not None:
            write(before=told.before, after=after)
        raise
    write(before=told.before, after=told.after)


def _broken_off(done: str | None, error: BaseException) -> str | None:
    why, lost = type(error).__name__, isinstance(error, _LOST)
    if done is not None:
        return f"broke off after {done}: {why}{', so that some more may be' if lost else ''}"
    return f"was tried, and nobody knows whether it was done: {why}" if lost else None


def note(
    broker: FleetBroker,
    *,
    who: str,
    what: str,
    subject: str,
    because: str,
    before: str | None = None,
    after: str | None = None,
) -> None:
    """Write a row down; raises what redis-py raises when neither the database nor Redis took it."""
    texts = [None if text is None else _writable(text) for text in (before, after)]
    row = Row(clock.real_now(), _writable(who), _writable(what), _writable(subject), _writable(because), *texts)
    engine = _database()
    if engine is None or not _stored(engine, broker.namespace, row):
        told = {name: value for name, value in asdict(row).items() if value is not None and name != "at"}
        fields: dict[Any, Any] = {**told, "at": wire.to_ms(row.at)}
        broker.client.xadd(keys.audit(broker.namespace), fields, maxlen=STREAM_LENGTH, approximate=True)


def read(broker: FleetBroker, most: int, *, before: datetime | None = None) -> list[Row]:
    """The last rows, newest first, or the last ones before an instant; from the database and from Redis.

    Raises what redis-py raises. A database that does not answer is left out, and said in the log.
    """
    newest = "+" if before is None else f"({wire.to_ms(before)}-0"
    found: Any = broker.client.xrevrange(keys.audit(broker.namespace), max=newest, count=most)
    rows = [_of_stream(fields) for _, fields in found]
    if (engine := _database()) is not None:
        rows += _of_table(engine, broker.namespace, most, before)
    return sorted(rows, key=lambda row: row.at, reverse=True)[:most]


def own_user() -> str:
    """Who runs this process, for whom nobody named: `ann on host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "somebody"
    return f"{user} on {socket.gethostname()}"


def _writable(text: str) -> str:
    """What every store takes: an id of a message may hold any bytes."""
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text[:_LONGEST])
    return shown.encode(errors="backslashreplace").decode()[:_LONGEST]


def _database() -> Engine | None:
    from fleet.app import settings

    if not settings().database_url:
        return None
    from fleet.storage import database

    return database()


def _stored(engine: Engine, namespace: str, row: Row) -> bool:
    from sqlalchemy import insert
    from sqlalchemy.exc import SQLAlchemyError

    from fleet.storage.tables import AuditRow

    try:
        with engine.begin() as connection:
            connection.execute(insert(AuditRow).values(namespace=namespace, **asdict(row)))
    except SQLAlchemyError as error:
        log.warning("audit_kept_in_redis", error=_reason(error), **asdict(row))
        return False
    return True


def _of_table(engine: Engine, namespace: str, most: int, before: datetime | None) -> list[Row]:
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError

    from fleet.storage.tables import AuditRow

    row = AuditRow
    asked = select(row.at, row.who, row.what, row.subject, row.because, row.before, row.after)
    asked = asked.where(row.namespace == namespace, *([] if before is None else [row.at < before]))
    try:
        with engine.connect() as connection:
            return [Row(*found) for found in connection.execute(asked.order_by(row.at.desc()).limit(most))]
    except SQLAlchemyError as error:
        log.warning("audit_not_read", error=_reason(error))
        return []


def _of_stream(fields: dict[bytes, bytes]) -> Row:
    told = {name.decode(): value.decode(errors="replace") for name, value in fields.items()}
    who, what, subject, because = (told.get(name, "") for name in ("who", "what", "subject", "because"))
    at = wire.from_ms(int(told["at"]))
    return Row(at, who, what, subject, because, told.get("before"), told.get("after"))


def _reason(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
