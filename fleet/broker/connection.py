"""A Redis client from a URL, with everything in the URL: TLS (`rediss://`), ACL user, unix socket, database, Sentinel.

`redis+sentinel://[user:password@]host:26379,other:26379/NAME/0` asks the sentinels for the master of that name, and
`rediss+sentinel://` speaks TLS to it. The client's own retries are off: redis-py would repeat a command whose reply was
lost, and only our scripts know that they are safe to repeat.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from fleet.errors import SettingsInvalid

CONNECTIONS = 1_024  # redis-py caps a pool at 100, which 128 threads that send outgrow
_HEALTH_SECONDS = 15
_SOCKET_SECONDS = 5  # a host that vanished must not hold the pump; older redis-py would wait for ever
_SENTINEL_PORT = 26_379


def client_from(url: str) -> redis.Redis:
    """A client that opens no connection yet.

    Raises `SettingsInvalid` for a URL that cannot be read; the URL itself, which may hold a password, is not repeated.
    """
    options: dict[str, Any] = {
        "max_connections": CONNECTIONS,
        "health_check_interval": _HEALTH_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": _SOCKET_SECONDS,
        "socket_connect_timeout": _SOCKET_SECONDS,
    }
    try:
        if "+sentinel://" in url:
            return _from_sentinel(url, options)
        return redis.Redis(connection_pool=redis.ConnectionPool.from_url(url, **options))
    except ValueError as error:
        raise SettingsInvalid(f"FLEET_REDIS_URL cannot be read: {error}.") from None


def _from_sentinel(url: str, options: dict[str, Any]) -> redis.Redis:
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    path = parts.path.strip("/").split("/")
    if not hosts or not path[0]:
        raise ValueError("a Sentinel URL is redis+sentinel://host:26379,other:26379/NAME/0")
    user, _, password = login.partition(":")
    if user:
        options["username"] = unquote(user)
    if password:
        options["password"] = unquote(password)
    sentinels = [(host.partition(":")[0], int(host.partition(":")[2] or _SENTINEL_PORT)) for host in hosts.split(",")]
    pool = SentinelConnectionPool(  # type: ignore[no-untyped-call]
        path[0],
        Sentinel(sentinels),  # type: ignore[no-untyped-call]
        db=int(path[1]) if len(path) > 1 else 0,
        ssl=parts.scheme.startswith("rediss"),
        **options,
    )
    return redis.Redis(connection_pool=pool)
