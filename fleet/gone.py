"""Tells a server that is gone from work that failed: PostgreSQL or Redis away is nobody's bad row.

Whoever works through rows asks it of each failure: after one like this the next row fails too, and thousands of
failures would say what one says. Whether a job that failed has used up an attempt is a narrower question, that of
`postgresql_gone` (`fleet.unspent`).

SQLAlchemy's errors are judged, and psycopg's own where those of another library were raised from them, as Django's are.
A process that has not imported one of the two does not load it here.

Not guaranteed: that the server is still away when this answers; nobody is asked. One that only reads counts as gone in
SQLAlchemy's errors alone, since of another library's connections to it nobody here knows that they end. Errors of other
drivers than psycopg 3 are failures like any.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import redis

from fleet.broker.broker import NotAccepted

_SQLALCHEMY, _PSYCOPG = "sqlalchemy.exc", "psycopg"
_SHUTS_DOWN = ("57P01", "57P02", "57P03")
_CONNECTION_EXCEPTIONS = "08"
READ_ONLY = "25006"  # a primary that was demoted, or a managed one whose disk is full


def server_gone(error: BaseException) -> bool:
    """Whether this, or what it was raised from, says that PostgreSQL or Redis does not answer or takes nothing.

    PostgreSQL that only reads takes nothing: the process's engine ends the connections to one (`fleet.storage.engine`).
    """
    no_place = _kind(_SQLALCHEMY, "TimeoutError")
    for seen in _causes(error):
        if isinstance(seen, (redis.ConnectionError, redis.TimeoutError, NotAccepted, no_place)):
            return True
        if isinstance(seen, _kind(_SQLALCHEMY, "DBAPIError")) and seen.connection_invalidated:
            return True
        if _no_server(seen):
            return True
    return False


def postgresql_gone(error: BaseException) -> bool:
    """Whether this says that PostgreSQL takes no connection, broke one off or only reads; the first one named counts.

    Nothing of Redis does; nor a pool that had no connection to lend, which the process may have used up itself; nor a
    session that the server ended for what was done in it (idle in a transaction).
    """
    no_place = _kind(_SQLALCHEMY, "TimeoutError")
    for seen in _causes(error):
        if isinstance(seen, (redis.RedisError, NotAccepted, no_place)):
            return False
        if isinstance(seen, _kind(_SQLALCHEMY, "DBAPIError")):
            broke = seen.connection_invalidated and getattr(seen.orig, "sqlstate", None) in (None, READ_ONLY)
            return bool(broke) or _no_server(seen)
        if isinstance(seen, _kind(_PSYCOPG, "Error")):
            # What others derive from an error of psycopg's is theirs: its pool's, that it had no connection to lend.
            return type(seen).__module__.partition(".")[0] == _PSYCOPG and _no_server(seen)
    return False


def _kind(module: str, name: str) -> Any:
    """A module's exception; where nobody imported the module, no kind, since nobody can have raised it."""
    return getattr(sys.modules.get(module), name, ())


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def _no_server(error: BaseException) -> bool:
    """An error of the connection itself; what a server answered (a deadlock, a full disk) has a state of its own."""
    state: str | None
    if isinstance(error, _kind(_SQLALCHEMY, "OperationalError")):
        state = getattr(error.orig, "sqlstate", None)
    elif isinstance(error, _kind(_PSYCOPG, "OperationalError")):
        state = error.sqlstate
    else:
        return False
    return state is None or state in _SHUTS_DOWN or state.startswith(_CONNECTION_EXCEPTIONS)
