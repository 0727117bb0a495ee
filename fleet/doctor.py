"""What is wrong with the servers that a fleet stands on, and with what it keeps on them: `fleet doctor`.

Not guaranteed: what the user of a URL may not see. Redis keeps INFO and CONFIG from a user with few rights; then a
finding says so. Nothing is changed, and what is said was so at one moment. A server that does not answer is one
problem, and what would be asked of it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import redis
from sqlalchemy.exc import SQLAlchemyError

from fleet import doctor_fleet, doctor_keys, doctor_postgres, doctor_redis
from fleet.app import App
from fleet.broker import FleetBroker
from fleet.broker.grants import ROLES, Role
from fleet.diagnosis import Finding, problem, warning
from fleet.errors import FleetError, ServerRefused
from fleet.servers import require_broker, require_postgres
from fleet.settings import Settings
from fleet.storage.engine import unpooled
from fleet.workers.presence import present


def examine(app: App, broker: FleetBroker, settings: Settings) -> Iterator[Finding]:
    """Every finding, Redis first, as they are found."""
    yield from doctor_fleet.host(app.lanes, settings)
    yield from _redis(app, broker)
    yield from _postgres(app, settings)


def _redis(app: App, broker: FleetBroker) -> Iterator[Finding]:
    try:
        yield from _roles(broker)
    except FleetError as error:
        yield _refused("redis", error)
        return
    client = broker.client
    yield from doctor_fleet.connections_to_redis(app.lanes, client)
    yield from _looked("redis", lambda: doctor_redis.examine(client))
    yield from _looked("redis", lambda: doctor_fleet.clock_of_redis(client))
    yield from _looked("fleet", lambda: doctor_fleet.keys_of(app, client, broker.namespace))
    yield from _looked("fleet", lambda: doctor_fleet.entries_of(app, client, broker.namespace))
    yield from _looked("fleet", lambda: doctor_fleet.catalogue_of(app, broker))
    yield from _looked("fleet", lambda: doctor_keys.keys_of_messages(present(client, broker.namespace)))


def _roles(broker: FleetBroker) -> Iterator[Finding]:
    """A warning where the user has the rights of some roles only; raises `ServerRefused` where it has those of none."""
    try:
        require_broker(broker)
    except ServerRefused as refused:
        if not (has := [role for role in ROLES if _has(broker, role)]):
            raise
        if "doctor" not in has:
            why = f"It can be the user of {', '.join(has)}, and a process of another role would not start as it"
            do = "Nothing, if it is meant for that; the doctor sees more as the user of `fleet acl doctor`"
            yield warning("redis", str(refused), why, do)


def _has(broker: FleetBroker, role: Role) -> bool:
    try:
        require_broker(broker, role)
    except ServerRefused:
        return False
    return True


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
