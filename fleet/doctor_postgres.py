"""What `fleet doctor` finds in a PostgreSQL: connections against what lanes open, migrations, its clock, durability.

Not guaranteed: how many hosts run each lane; connections are reckoned for one of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, text

from fleet.app import App
from fleet.clock import clock
from fleet.diagnosis import Finding, problem, warning
from fleet.storage.migrate import heads

SKEW_SEEN, SKEW_TOO_MUCH = timedelta(seconds=0.5), timedelta(seconds=2)  # the beat refuses slots 2 s ahead
_BESIDE_THE_POOL = 1  # each worker process listens for changes of reference data


def examine(engine: Engine, app: App, pool: int) -> Iterator[Finding]:
    """Every finding; raises what SQLAlchemy raises when it does not answer."""
    with engine.connect() as connection:
        yield from _writes(connection)
        yield from _connections(connection, app, pool)
        yield from _clock(connection)
    yield from _migrations(engine, app)


def _show(connection: Connection, setting: str) -> str:
    return str(connection.scalar(text("SELECT current_setting(:name, true)"), {"name": setting}))


def _writes(connection: Connection) -> Iterator[Finding]:
    if connection.scalar(text("SELECT pg_is_in_recovery()")):
        yield problem("postgres", "it is a standby", "It takes no writes", "Name the primary in FLEET_DATABASE_URL")
    elif _show(connection, "default_transaction_read_only") == "on":
        why = "No row can be claimed or ended"
        yield problem("postgres", "default_transaction_read_only is on", why, "Turn it off for this user or database")
    if _show(connection, "fsync") == "off":
        yield problem("postgres", "fsync is off", "When its machine dies the database may be broken", "Turn it on")
    if _show(connection, "synchronous_commit") == "off":
        yield warning(
            "postgres",
            "synchronous_commit is off",
            "When it dies, commits of the last half second are gone: a filing that was sent may be forgotten",
            "Turn it on for this user or database",
        )


def needed(app: App, pool: int) -> dict[str, int]:
    """Connections that one supervisor of each lane opens at most, by lane: its children's pools, and its relay's."""
    return {
        lane.name: lane.processes * (min(pool, lane.threads + 1) + _BESIDE_THE_POOL) + 1  # the relay's
        for lane in app.lanes
    }


def _connections(connection: Connection, app: App, pool: int) -> Iterator[Finding]:
    most = int(_show(connection, "max_connections")) - int(_show(connection, "superuser_reserved_connections"))
    by_lane = needed(app, pool)
    total = sum(by_lane.values())
    largest = max(by_lane, key=lambda name: by_lane[name], default="")
    found = (
        f"lanes open up to {total} connections, one host of each (FLEET_DATABASE_POOL {pool}; {largest} alone "
        f"{by_lane.get(largest, 0)}), and it gives {most}"
    )
    do = "Raise max_connections, or lower FLEET_DATABASE_POOL or the processes in config/lanes.py"
    if total > most:
        yield problem("postgres", found, "Busy lanes are refused connections and their jobs fail", do)
    elif total > 0.8 * most:
        yield warning("postgres", found, "A second host of a lane, or a deploy that overlaps, is too many", do)


def _clock(connection: Connection) -> Iterator[Finding]:
    before = clock.real_now()
    there: datetime = connection.scalar(text("SELECT clock_timestamp()"))
    yield from skew("postgres", before, there, clock.real_now())


def skew(of: str, before: datetime, there: datetime, after: datetime) -> Iterator[Finding]:
    """Whether a server's clock is off this host's by more than the round trip of the question could explain."""
    ahead = there - (before + (after - before) / 2)
    certain = abs(ahead) - (after - before) / 2
    if certain < SKEW_SEEN:
        return
    seconds = abs(ahead).total_seconds()
    found = f"its clock is {seconds:.1f} s {'ahead of' if ahead > timedelta(0) else 'behind'} this host's"
    why = "Slots go by the clock of Redis, messages expire by that of their worker: a skew moves one against the other"
    yield (problem if certain >= SKEW_TOO_MUCH else warning)(of, found, why, "Does chrony or ntpd run on both?")


def _migrations(engine: Engine, app: App) -> Iterator[Finding]:
    stands, wanted, unknown = heads(engine, app.root)
    if unknown:
        found = f"it stands at {', '.join(unknown)}, which this code does not know"
        yield warning("postgres", found, "A newer release migrated it, and this one may not fit", "Deploy that release")
    elif set(stands) != set(wanted):
        found = f"its migrations stand at {', '.join(stands) or 'nothing'}, and this code needs {', '.join(wanted)}"
        yield problem("postgres", found, "Jobs fail at what is missing; slots wait", "`fleet migrate`")
