"""Whether the configured Redis and PostgreSQL can be reached and are new enough: one clear sentence if not.

Not guaranteed: that their configuration is safe for a fleet (eviction, persistence), nor PostgreSQL's rights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
from redis.sentinel import SentinelConnectionPool
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from fleet.bell import Bell
from fleet.broker import FleetBroker
from fleet.broker.grants import Role
from fleet.broker.rights import refusal, require_rights, require_role
from fleet.broker.roles import own_of
from fleet.database_url import shown
from fleet.errors import ServerRefused, ServerTooOld, ServerUnreachable

OLDEST_REDIS = (7, 0)  # scripts that may run when memory is full
_AGAIN_SECONDS = 1.0
OLDEST_POSTGRES = 14  # what SQLAlchemy 2.1 and the migrations are tested on


def require_broker(broker: FleetBroker, role: Role | None = None) -> None:
    """Raise `ServerUnreachable`, `ServerTooOld` or `ServerRefused` unless the engine can work on the broker's Redis.

    Its user must have the rights of the role, or all of the engine's where none is given.
    """
    require_redis(broker.client)
    try:
        if role is None:
            require_rights(broker.client, broker.own_scripts, broker.namespace)
        else:
            require_role(broker.client, broker.own_scripts, role, own_of(broker))
    except (redis.RedisError, OSError) as error:
        raise _unreachable(broker.client, error) from None


def wait_for_broker(
    broker: FleetBroker, role: Role, stopped: Bell, waits: Callable[[ServerUnreachable], object]
) -> None:
    """Return when `require_broker` is content, or `stopped` is set; `waits` hears once that Redis does not answer.

    Raises `ServerTooOld` or `ServerRefused`, which waiting would not mend.
    """
    said = False
    while not stopped.is_set():
        try:
            require_broker(broker, role)
            return
        except ServerUnreachable as error:
            if not said:
                waits(error)
            said = True
            stopped.wait(_AGAIN_SECONDS)


def require_redis(client: redis.Redis) -> None:
    """Raise `ServerUnreachable`, `ServerTooOld` or `ServerRefused` unless a Redis or Valkey of today answers."""
    try:
        found = _version(client)
    except (redis.RedisError, OSError) as error:
        raise _unreachable(client, error) from None
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST_REDIS:
        oldest = ".".join(map(str, OLDEST_REDIS))
        raise ServerTooOld(f"Redis at {_address(client)} is version {found}; Nightshift needs {oldest} or newer.")


def _version(client: redis.Redis) -> str:
    """By HELLO, which every user may give; INFO, for a server that is too old to know it, is one of the @dangerous."""
    try:
        said: Any = client.execute_command("HELLO")  # type: ignore[no-untyped-call]
    except redis.exceptions.NoPermissionError:
        raise
    except redis.ResponseError:
        return str(client.info("server")["redis_version"])
    fields = said if isinstance(said, dict) else dict(zip(said[::2], said[1::2], strict=True))
    version: bytes = fields[b"version"]
    return version.decode()


def _unreachable(client: redis.Redis, error: Exception) -> ServerRefused | ServerUnreachable:
    where = _address(client)
    if refused := refusal(error):
        return ServerRefused(f"{where}: {refused}")
    hint = " Its certificate and ssl_ca_certs: docs/redis.md." if "CERTIFICATE_VERIFY_FAILED" in str(error) else ""
    return ServerUnreachable(f"Redis at {where} does not answer ({error}). Check FLEET_REDIS_URL.{hint}")


def _address(client: redis.Redis) -> str:
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        return f"the sentinels' {pool.service_name!r}"
    options = pool.connection_kwargs
    return str(options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")


def require_postgres(engine: Engine) -> None:
    """Raise `ServerUnreachable` or `ServerTooOld` unless a PostgreSQL answers that the engine can use."""
    where = shown(engine.url.render_as_string(hide_password=False))
    try:
        with engine.connect() as connection:
            version = int(connection.scalar(text("SHOW server_version_num")) or 0)
    except OperationalError as error:
        reason = str(error.orig).strip().splitlines()[0]
        raise ServerUnreachable(
            f"PostgreSQL at {where} does not answer ({reason}). Check FLEET_DATABASE_URL."
        ) from None
    if version // 10_000 < OLDEST_POSTGRES:
        raise ServerTooOld(
            f"PostgreSQL at {where} is version {version // 10_000}; Nightshift needs {OLDEST_POSTGRES} or newer."
        )
