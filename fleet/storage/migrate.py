"""Bring the database to the newest revision of every branch: one `fleet migrate` for the engine and the application.

The application's branch is any `*/migrations/versions` folder below its root. Two migrations at once are safe: the
second waits for the first's advisory lock and then finds nothing to do. A revision that fails leaves those before it.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

_HERE = Path(__file__).parent
_LOCK = 0x4E49_4748_5453  # "NIGHTS"


def migrate(engine: Engine, root: Path) -> tuple[str, ...]:
    """Upgrade to every head; returns the heads the database now stands at."""
    config = _config(root)
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": _LOCK})
        connection.commit()
        try:
            config.attributes["connection"] = connection
            command.upgrade(config, "heads")
            context = MigrationContext.configure(connection, opts={"version_table": "fleet_migrations"})
            return tuple(sorted(context.get_current_heads()))
        finally:
            connection.rollback()
            connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": _LOCK})
            connection.commit()


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


def _config(root: Path) -> Config:
    engine_versions = _HERE / "migrations" / "versions"
    folders = [engine_versions, *(path for path in root.glob("*/migrations/versions") if path != engine_versions)]
    config = Config()
    config.set_main_option("script_location", str(_HERE / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", "\n".join(str(folder).replace("%", "%%") for folder in folders))
    return config
