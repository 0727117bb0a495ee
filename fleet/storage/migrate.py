"""Bring the database to the newest revision of every branch: one `fleet migrate` for the engine and the application.

The application's branch is any `*/migrations/versions` folder below its root, but for one with an `env.py` beside it:
that is an Alembic environment of its own, whose revisions are marked elsewhere, and it is left alone. Two migrations at
once are safe: the second waits for the first's advisory lock and then finds nothing to do. A revision that fails leaves
those before it.

While a statement waits for a table, whoever comes after it waits too, readers among them. So no statement of a
revision waits for a lock, of a table or of a row, longer than three seconds: its revision is rolled back, which lets
the others through, and begun again after a pause, for twenty minutes in all.

Not guaranteed: that a table is blocked for no longer than that. A revision keeps what locks it has while its next
statement waits, or builds an index. Nothing bounds the wait of what runs in an `autocommit_block`, where only what says
CONCURRENTLY belongs: nobody queues behind that, and cut off it leaves an invalid index. Nor that for the advisory lock.
"""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import OperationalError

from fleet.errors import MigrationBlocked
from fleet.logs import get_logger
from fleet.storage.lock_watch import LockWatch

log = get_logger(__name__)

_HERE = Path(__file__).parent
_LOCK = 0x4E49_4748_5453  # "NIGHTS"

_LOCK_TIMEOUT = timedelta(seconds=3)
"""What the whole fleet stands still for at each try: longer than the transactions of its jobs, shorter than anybody's
soft budget."""

_PAUSE = timedelta(seconds=10)
"""Between two tries: what queued in three seconds is through, and new work gets done."""

_TRIED_FOR = timedelta(minutes=20)
"""The Job in `config/deploy/kubernetes` is ended after thirty: the rest is for what the migrations themselves take."""

_LOCK_NOT_AVAILABLE = "55P03"


def migrate(engine: Engine, root: Path, *, tried_for: timedelta = _TRIED_FOR) -> tuple[str, ...]:
    """Upgrade to every head; returns the heads the database now stands at.

    Raises `MigrationBlocked` where a statement is refused a lock and was tried for so long.
    """
    config = _config(root)
    with engine.connect() as connection:
        _wait_for_others(connection)
        try:
            config.attributes["connection"] = connection
            event.listen(connection, "begin", _bound_its_waits)
            _upgrade(connection, config, tried_for)
            context = MigrationContext.configure(connection, opts={"version_table": "fleet_migrations"})
            return tuple(sorted(context.get_current_heads()))
        finally:
            connection.rollback()
            connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": _LOCK})
            connection.commit()


def _wait_for_others(connection: Connection) -> None:
    """Until no other migration runs. Asked again and again: a statement that waits keeps a snapshot, and an index that
    the other builds CONCURRENTLY waits for every older one, so that each would wait for the other."""
    while not connection.scalar(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": _LOCK}):
        connection.rollback()
        time.sleep(1)
    connection.commit()


def _bound_its_waits(connection: Connection) -> None:
    """For the transaction that begins, and no longer: what is in an `autocommit_block` waits for as long as it must."""
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        milliseconds = _LOCK_TIMEOUT // timedelta(milliseconds=1)
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {milliseconds}")


def _upgrade(connection: Connection, config: Config, tried_for: timedelta) -> None:
    """Each revision is a transaction with its mark, so that a refused one begins anew and those before it are done."""
    ends, tries = time.monotonic() + tried_for.total_seconds(), 0
    pid = connection.scalar(text("SELECT pg_backend_pid()"))
    connection.commit()
    with LockWatch(connection.engine, pid) as watch:
        while (refused := _refused(connection, config)) is not None:
            tries, seen = tries + 1, watch.take()
            statement = " ".join((refused.statement or "").split())[:200]
            known = {"waits_for": seen.table if seen else None, "held_by": seen.held_by if seen else None}
            left = ends - time.monotonic()
            if left <= 0:
                raise MigrationBlocked(statement, tries=tries, tried_for=tried_for, **known) from refused
            log.warning("migration_waits", statement=statement, tries=tries, **known)
            time.sleep(min(_PAUSE.total_seconds(), left))


def _refused(connection: Connection, config: Config) -> OperationalError | None:
    """Upgrade; what a statement was refused its lock with, and its revision is rolled back then."""
    try:
        command.upgrade(config, "heads")
    except OperationalError as error:
        connection.rollback()
        if getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
            return error
        raise
    return None


def scripts(root: Path) -> ScriptDirectory:
    """Every migration of the engine and the application; needs no database."""
    return ScriptDirectory.from_config(_config(root))


def revisions(root: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The heads that `migrate` brings a database to, and all revisions."""
    known = scripts(root)
    return tuple(sorted(known.get_heads())), tuple(sorted(script.revision for script in known.walk_revisions()))


def heads(engine: Engine, root: Path) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Where the database stands, where this code wants it, and which of the former this code does not know."""
    wanted, known = revisions(root)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": "fleet_migrations"})
        stands = tuple(sorted(context.get_current_heads()))
    return stands, wanted, tuple(one for one in stands if one not in known)


def left_alone(root: Path) -> tuple[str, ...]:
    """The application's folders of migrations that are Alembic environments of their own, as seen from its root."""
    return tuple(str(path.parent.relative_to(root)) for path in _versions(root, with_environment=True))


def _versions(root: Path, *, with_environment: bool) -> list[Path]:
    found = sorted(root.glob("*/migrations/versions"))
    return [path for path in found if (path.parent / "env.py").exists() == with_environment]


def _config(root: Path) -> Config:
    folders = [_HERE / "migrations" / "versions", *_versions(root, with_environment=False)]
    config = Config()
    config.set_main_option("script_location", str(_HERE / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", "\n".join(str(folder).replace("%", "%%") for folder in folders))
    return config
