"""Tells a server that is gone from work that failed: PostgreSQL or Redis away is nobody's bad row.

Whoever works through rows asks it of each failure: after one like this the next row fails too, and thousands of
failures would say what one says.

Not guaranteed: that the server is still away when this answers; nobody is asked.
"""

from __future__ import annotations

import redis
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from fleet.broker.broker import NotAccepted

_SHUTS_DOWN = ("57P01", "57P02", "57P03")
_CONNECTION_EXCEPTIONS = "08"


def server_gone(error: BaseException) -> bool:
    """Whether this, or what it was raised from, says that PostgreSQL or Redis does not answer or takes nothing.

    PostgreSQL that only reads takes nothing: the process's engine ends the connections to one (`fleet.storage.engine`).
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (redis.ConnectionError, redis.TimeoutError, NotAccepted, PoolTimeout)):
            return True
        if isinstance(seen, DBAPIError) and (seen.connection_invalidated or _no_server(seen)):
            return True
        seen = seen.__cause__
    return False


def _no_server(error: DBAPIError) -> bool:
    """An error of the connection itself; what a server answered (a deadlock, a full disk) has a state of its own."""
    if not isinstance(error, OperationalError):
        return False
    state = getattr(error.orig, "sqlstate", None)
    return state is None or state in _SHUTS_DOWN or state.startswith(_CONNECTION_EXCEPTIONS)
