"""A Redis client from a URL, with everything in the URL: TLS (`rediss://`), ACL user, unix socket, database, Sentinel.

What may stand in a URL is told in `docs/redis.md`; a URL or a certificate that cannot be read is refused here, before
anything connects, and never repeated: a password may hide in any part of a URL that was put together wrongly. The
client's own retries are off: redis-py would repeat a command whose reply was lost, and only our scripts know that they
are safe to repeat.

Not guaranteed: that a host that falls silent without a word is noticed before the socket's 5 s are over.
"""

from __future__ import annotations

import re
import ssl
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from fleet import deadline
from fleet.broker.sentinel import Sentinels
from fleet.errors import SettingsInvalid

CONNECTIONS = 1_024  # redis-py caps a pool at 100, which 128 threads that send outgrow
_HEALTH_SECONDS = 15
_SOCKET_SECONDS = 5  # a host that vanished must not hold the pump; older redis-py would wait for ever
_SENTINEL_SECONDS = 1  # one that is gone must not hold up the question to the next
_SENTINEL_PORT = 26_379
_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
_OF_SENTINELS = ("sentinel_username", "sentinel_password")
_OF_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_check_hostname", "ssl_cert_reqs")
_OF_SOCKETS = ("socket_timeout", "socket_connect_timeout", "socket_keepalive", "health_check_interval")
_OF_ALL = ("db", "protocol", "client_name", "max_connections", *_OF_SOCKETS)
_SECRET = re.compile(r"(password=)[^&]*")


class _Client(redis.Redis):
    """A client none of whose commands, and none of whose pipelines, a deadline cuts in half.

    A raise between a command and its reply would put a connection back into the pool whose next reply is another
    command's. What it waits at most is its sockets' timeouts.
    """

    def execute_command(self, *args: Any, **options: Any) -> Any:
        with deadline.shielded():
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def evalsha(self, sha: str, numkeys: int, *keys_and_args: Any) -> Any:
        """A script, straight over a connection of the pool.

        redis-py's general way (its metrics, its retries, which are off here, a callback a command) took a quarter of
        the time from `send` to the start of a job.
        """
        with deadline.shielded():
            pool = self.connection_pool
            connection = pool.get_connection()
            try:
                connection.send_command("EVALSHA", sha, numkeys, *keys_and_args)  # type: ignore[no-untyped-call]
                return connection.read_response()
            finally:
                pool.release(connection)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        return _Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


class _Pipeline(Pipeline):
    """A client's pipeline, all of whose replies are read behind one shield."""

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        with deadline.shielded():
            return super().execute(raise_on_error)

    def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        with deadline.shielded():
            return super().immediate_execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def reset(self) -> None:  # type: ignore[override]  # redis-py has a command of this name too
        """It asks, too, where a key is watched."""
        with deadline.shielded():
            super().reset()


def client_from(url: str, *, answers_within: timedelta | None = None) -> redis.Redis:
    """A client that opens no connection yet and waits at most `answers_within` for a reply, whatever the URL says.

    Raises `SettingsInvalid` for a URL that cannot be read, or a certificate that it names and that cannot.
    """
    try:
        pool = _pool(url)
    except (ValueError, TypeError, redis.RedisError) as error:
        # Of urllib's and redis-py's faults only this one is sure to hold no part of the URL.
        known = re.match(r"Invalid value for '\w+'|Invalid SSL Certificate Requirements Flag: \w+", str(error))
        raise _invalid(known[0] if known else "its user, password, host or port is malformed") from None
    if answers_within is not None:
        for name in ("socket_timeout", "socket_connect_timeout"):
            said = pool.connection_kwargs.get(name) or _SOCKET_SECONDS
            pool.connection_kwargs[name] = min(said, answers_within.total_seconds())
    return _Client(connection_pool=pool)


def shown(url: str) -> str:
    """The URL for a person's eyes: its passwords as stars."""
    scheme, _, rest = url.partition("://")
    authority, place, query = _parted(rest)
    login, at, hosts = authority.rpartition("@")
    user, colon, _ = login.partition(":")
    hidden = "?" + _SECRET.sub(r"\1***", query) if query else ""
    return f"{scheme}://{user}{':***' if colon else ''}{at}{hosts}{place}{hidden}"


def _pool(url: str) -> redis.ConnectionPool:
    scheme, _, rest = url.partition("://")
    if scheme not in _SCHEMES:
        raise _invalid(f"it must begin with one of {', '.join(f'{known}://' for known in _SCHEMES)}")
    authority, place, query = _parted(rest)
    options = dict(parse_qsl(query, keep_blank_values=True))
    login, at, hosts = authority.rpartition("@")
    if "@" in place + query or "#" in rest:
        raise _invalid("there is a bare @ / ? or # in it")
    tls, _, sentinel = scheme.partition("+")
    _require_known(options, tls == "rediss", bool(sentinel))
    if tls == "rediss":
        _require_certificates(options)
    if sentinel:
        return _sentinel_pool(tls, f"{login}{at}", hosts, place, options)
    if tls == "unix":
        if hosts or not place:
            raise _invalid("a socket's URL is unix:///path/of/redis.sock?db=0, with three slashes")
    else:
        _database(place.strip("/"))
    return _plain_pool(url)


def _parted(rest: str) -> tuple[str, str, str]:
    """User, host and port; path; query."""
    before, _, query = rest.partition("?")
    authority, slash, path = before.partition("/")
    return authority, slash + path, query


def _plain_pool(url: str) -> redis.ConnectionPool:
    pool = redis.ConnectionPool.from_url(
        url,
        max_connections=CONNECTIONS,
        health_check_interval=_HEALTH_SECONDS,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=_SOCKET_SECONDS,
        socket_connect_timeout=_SOCKET_SECONDS,
    )
    pool.connection_class(**pool.connection_kwargs)  # opens nothing, and refuses what it cannot take
    return pool


def _sentinel_pool(tls: str, login: str, hosts: str, place: str, options: dict[str, str]) -> SentinelConnectionPool:
    name, _, database = place.strip("/").partition("/")
    if not hosts or not name:
        raise _invalid("a Sentinel URL is redis+sentinel://host:26379,other:26379/NAME/0")
    _database(database)
    own = {key.removeprefix("sentinel_"): options.pop(key) for key in _OF_SENTINELS if key in options}
    # What is the same for a master that is asked for and one that is named is read by redis-py, in one place.
    plain = _plain_pool(f"{tls}://{login}master/{database or 0}?{urlencode(options)}")
    to_master = {key: value for key, value in plain.connection_kwargs.items() if key not in ("host", "port")}
    to_sentinel = {key: value for key, value in to_master.items() if key.startswith("ssl_")}
    to_sentinel |= {"ssl": True} if tls == "rediss" else {}
    seconds = {"socket_timeout": _SENTINEL_SECONDS, "socket_connect_timeout": _SENTINEL_SECONDS}
    sentinels = Sentinels(  # type: ignore[no-untyped-call]
        [_address(host, number) for number, host in enumerate(hosts.split(","), start=1)],
        sentinel_kwargs={"retry": Retry(NoBackoff(), 0), **seconds, **to_sentinel, **own},
    )
    return SentinelConnectionPool(  # type: ignore[no-untyped-call]
        name, sentinels, ssl=tls == "rediss", max_connections=plain.max_connections, **to_master
    )


def _address(host: str, number: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{host}")
        if parts.hostname and (parts.port is not None or not host.endswith(":")):
            return parts.hostname, parts.port or _SENTINEL_PORT
    except ValueError:
        pass  # what urllib says may hold a password that landed here
    raise _invalid(f"its sentinel number {number} is no host:port (an IPv6 address stands in brackets)")


def _database(written: str) -> None:
    """redis-py would take what is no number for database 0."""
    if written and not written.isdecimal():
        raise _invalid("its database is no number")


def _require_known(options: dict[str, str], tls: bool, sentinel: bool) -> None:
    taken = (*_OF_ALL, *(_OF_TLS if tls else ()), *(_OF_SENTINELS if sentinel else ()))
    for name in options:
        if name in _OF_TLS and not tls:
            raise _invalid(f"{name} needs rediss:// or rediss+sentinel://")
        if name not in taken:
            raise _invalid(f"it has an option {name!r}; known here are {', '.join(taken)}")


def _require_certificates(options: dict[str, str]) -> None:
    """Read the files once now: at the first command redis-py would only say that there is no such file, not which."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority := options.get("ssl_ca_certs"):
        try:
            context.load_verify_locations(authority)
        except OSError as error:
            raise _invalid(f"ssl_ca_certs, {authority}, cannot be used: {error.strerror or error}") from None
    own, key = options.get("ssl_certfile"), options.get("ssl_keyfile")
    if key and not own:
        raise _invalid("ssl_keyfile needs ssl_certfile beside it")
    if own:
        try:
            context.load_cert_chain(own, key, password=options.get("ssl_password", ""))  # never asks on a terminal
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or error
            raise _invalid(f"ssl_certfile, {own}, with its key {key or own} cannot be used: {said}") from None


def _invalid(found: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"The Redis URL (FLEET_REDIS_URL) cannot be read: {found}. Within a user or password write @ : / ? # and % "
        "percent-encoded, as %40 %3A %2F %3F %23 %25; docs/redis.md shows every form."
    )
