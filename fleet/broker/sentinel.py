"""Asks sentinels where the master is, each time a connection is made.

redis-py's own question lost sentinels when two threads asked at once, and gave up at one that refused; here a sentinel
that is down, refuses, or holds the master for down is passed over for the next, and the one that answered is asked
first from then on.

Not guaranteed: that a sentinel's answer is the newest. Connections to a master that was demoted are closed by its
sentinels, and by the first READONLY; what it accepted in between is lost with it, as with every asynchronous replica.
"""

from __future__ import annotations

from typing import Any

import redis
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool


class Sentinels(Sentinel):
    """The sentinels of a URL. Each is asked within its own timeouts, and never twice."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Host and port of the master.

        Raises `redis.AuthenticationError` if a sentinel refused and none knew, else `MasterNotFoundError` with what
        each said.
        """
        said: list[str] = []
        refused = False
        for sentinel in tuple(self.sentinels):
            where = "{host}:{port}".format_map(sentinel.connection_pool.connection_kwargs)
            try:
                masters: Any = sentinel.sentinel_masters()
            except redis.RedisError as error:
                refused |= isinstance(error, (redis.AuthenticationError, redis.exceptions.NoPermissionError))
                said.append(f"{where}: {error}")
                continue
            state = masters.get(service_name)
            if state is None:
                said.append(f"{where}: knows no such master, only {', '.join(sorted(masters)) or 'none'}")
            elif not self.check_master_state(state, service_name):  # type: ignore[no-untyped-call]
                said.append(f"{where}: it is down")
            else:
                # A new list: another thread may be half-way through the old one.
                self.sentinels = [sentinel, *(other for other in self.sentinels if other is not sentinel)]
                return state["ip"], state["port"]
        words = f"no sentinel told where the master {service_name!r} is ({'; '.join(said)})"
        if refused:
            raise redis.AuthenticationError(f"{words}; sentinel_username= and sentinel_password= are for them")
        raise MasterNotFoundError(words)


def left_behind(client: redis.Redis, connection: Any) -> bool:
    """Whether sentinels have told this client of another master than the one that the connection goes to.

    A subscription only listens: nobody tells it READONLY, and a demoted master keeps it.
    """
    pool = client.connection_pool
    if not isinstance(pool, SentinelConnectionPool) or connection is None:
        return False
    return pool.master_address not in (None, (connection.host, connection.port))
