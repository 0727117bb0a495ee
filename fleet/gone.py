"""Tells a server that is gone from work that failed: PostgreSQL or Redis away is nobody's bad row.

Whoever works through rows asks it of each failure: after one like this the next row fails too, and thousands of
failures would say what one says. Whether a job that failed has used up an attempt is a narrower question, that of
`postgresql_gone` (`fleet.unspent`).

Not guaranteed: that the server is still away when this answers; nobody is asked.
"""

from __future__ import annotations

from collections.abc import Iterator

import redis
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from fleet.broker.broker import NotAccepted

_SHUTS_DOWN = ("57P01", "57P02", "57P03")
_CONNECTION_EXCEPTIONS = "08"
READ_ONLY = "25006"  # a primary that was demoted, or a managed one whose disk is full


def server_gone(error: BaseException) -> bool:
    """Whether this, or what it was raised from, says that PostgreSQL or Redis does not answer or takes nothing.

    PostgreSQL that only reads takes nothing: the process's engine ends the connections to one (`fleet.storage.engine`).
    """
    for seen in _causes(error):
        if isinstance(seen, (redis.ConnectionError, redis.TimeoutError, NotAccepted, PoolTimeout)):
            return True
        if isinstance(seen, DBAPIError) and (seen.connection_invalidated or _no_server(seen)):
            return True
    return False


def postgresql_gone(error: BaseException) -> bool:
    """Whether this says that PostgreSQL takes no connection, broke one off or only reads; the first one named counts.

    Nothing of Redis does; nor a pool that had no connection to lend, which the process may have used up itself; nor a
    session that the server ended for what was done in it (idle in a transaction).
    """
    for seen in _causes(error):
        if isinstance(seen, (redis.RedisError, NotAccepted, PoolTimeout)):
            return False
        if isinstance(seen, DBAPIError):
            broke = seen.connection_invalidated and getattr(seen.orig, "sqlstate", None) in (None, READ_ONLY)
            return broke or _no_server(seen)
    return False


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def _no_server(error: DBAPIError) -> bool:
    """An error of the connection itself; what a server answered (a deadlock, a full disk) has a state of its own."""
    if not isinstance(error, OperationalError):
        return False
    state = getattr(error.orig, "sqlstate", None)
    return state is None or state in _SHUTS_DOWN or state.startswith(_CONNECTION_EXCEPTIONS)
