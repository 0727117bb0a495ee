"""Whether the configured Redis and PostgreSQL can be reached and are new enough: one clear sentence if not.

Not guaranteed: that their configuration is safe for a fleet (eviction, persistence, rights).
"""

from __future__ import annotations

import redis
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from fleet.errors import ServerTooOld, ServerUnreachable

OLDEST_REDIS = (7, 0)  # scripts that may run when memory is full
OLDEST_POSTGRES = 14  # what SQLAlchemy 2.1 and the migrations are tested on


def require_redis(client: redis.Redis) -> None:
    """Raise `ServerUnreachable` or `ServerTooOld` unless a Redis or Valkey answers that the engine can use."""
    where = _redis_address(client)
    try:
        found = str(client.info("server")["redis_version"])
    except redis.AuthenticationError as error:
        raise ServerUnreachable(f"Redis at {where} refused the user or password of FLEET_REDIS_URL: {error}.") from None
    except (redis.RedisError, OSError) as error:
        raise ServerUnreachable(f"Redis at {where} does not answer ({error}). Check FLEET_REDIS_URL.") from None
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST_REDIS:
        oldest = ".".join(map(str, OLDEST_REDIS))
        raise ServerTooOld(f"Redis at {where} is version {found}; Nightshift needs {oldest} or newer.")


def _redis_address(client: redis.Redis) -> str:
    options = client.connection_pool.connection_kwargs
    return str(options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")


def require_postgres(engine: Engine) -> None:
    """Raise `ServerUnreachable` or `ServerTooOld` unless a PostgreSQL answers that the engine can use."""
    where = engine.url.render_as_string(hide_password=True)
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
