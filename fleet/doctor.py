"""What is wrong with the servers that a fleet stands on, and with what it keeps on them: `fleet doctor`.

Not guaranteed: what the user of a URL may not see. Redis keeps INFO and CONFIG from a user with few rights; then a
finding says so. Nothing is changed, and what is said was so at one moment. A server that does not answer is one
problem, and what would be asked of it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import redis
from sqlalchemy.exc import SQLAlchemyError

from fleet import doctor_fleet, doctor_postgres, doctor_redis
from fleet.app import App
from fleet.broker import FleetBroker
from fleet.broker.grants import ROLES
from fleet.diagnosis import Finding, problem, warning
from fleet.errors import FleetError, ServerRefused
from fleet.servers import require_broker, require_postgres
from fleet.settings import Settings
from fleet.storage.engine import unpooled


def examine(app: App, broker: FleetBroker, settings: Settings) -> Iterator[Finding]:
    """Every finding, Redis first, as they are found."""
    yield from doctor_fleet.host(app.lanes, settings)
    yield from _redis(app, broker)
    yield from _postgres(app, settings)


def _redis(app: App, broker: FleetBroker) -> Iterator[Finding]:
    try:
        _require_some_role(broker)
    except FleetError as error:
        yield _refused("redis", error)
        return
    client = broker.client
    yield from doctor_fleet.connections_to_redis(app.lanes, client)
    yield from _looked("redis", lambda: doctor_redis.examine(client))
    yield from _looked("redis", lambda: doctor_fleet.clock_of_redis(client))
    yield from _looked("fleet", lambda: doctor_fleet.keys_of(app, client, broker.namespace))
    yield from _looked("fleet", lambda: doctor_fleet.catalogue_of(app, broker))


def _require_some_role(broker: FleetBroker) -> None:
    """Whoever asks may have the rights of one role only; what that one lacks its own process names at its start."""
    try:
        require_broker(broker)
    except ServerRefused as refused:
        for role in ROLES:
            with suppress(ServerRefused):
                require_broker(broker, role)
                return
        raise refused from None


def _postgres(app: App, settings: Settings) -> Iterator[Finding]:
    if not settings.database_url:
        yield warning(
            "postgres",
            "no database is configured (FLEET_DATABASE_URL)",
            "The second line of promise 2 is off: after a failover of Redis that forgot a second, a slot may run twice",
            "Give one, unless that is wanted",
        )
        return
    engine = unpooled(settings.database_url)
    try:
        require_postgres(engine)
        yield from _looked("postgres", lambda: doctor_postgres.examine(engine, app, settings.database_pool))
    except FleetError as error:
        yield _refused("postgres", error)
    finally:
        engine.dispose()


def _refused(of: str, error: FleetError) -> Finding:
    """What the engine itself says at the start of a lane is a finding as it stands."""
    return problem(of, str(error).rstrip("."), "Nothing of the fleet starts on it", "")


def _looked(of: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings up to the one that a server would not let us make."""
    try:
        yield from look()
    except (redis.RedisError, SQLAlchemyError, OSError) as error:
        said = str(error).strip().splitlines() or [repr(error)]
        yield problem(
            of, f"it stopped answering while it was examined: {said[0]}", "The rest is not known", "Try again"
        )
