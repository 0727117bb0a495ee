"""What a session of PostgreSQL waits for, and who holds it, seen from a connection beside it.

PostgreSQL says so only while it waits. So a thread looks each second, and keeps what it saw last.

Not guaranteed: that a wait of less than a second or two is seen; the state of other users' sessions, which PostgreSQL
shows to members of `pg_read_all_stats` only. On failure (no connection is left, the server went away): nothing is seen.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from sqlalchemy import Engine

from fleet.storage.engine import dedicated

_SECONDS = 1.0  # between two looks, and before the first: who waits for nobody costs no connection
_MOST = 3  # holders that are named; a table in use has dozens
_LOOK = """
    SELECT DISTINCT waits.relation::regclass::text, holds.pid, usename, application_name, state, xact_start
    FROM pg_locks waits, unnest(pg_blocking_pids(waits.pid)) holds (pid) LEFT JOIN pg_stat_activity USING (pid)
    WHERE waits.pid = %s AND NOT waits.granted
    ORDER BY xact_start, holds.pid
"""


@dataclass(frozen=True)
class LockWait:
    """A table or an index, None where it is a row's lock or the like; and who holds it, in words, or who is before."""

    table: str | None
    held_by: str


class LockWatch:
    """Watches one session, by its process id, for as long as the block."""

    def __init__(self, engine: Engine, pid: int) -> None:
        self._engine, self._pid = engine, pid
        self._seen: LockWait | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lock-watch", daemon=True)

    def __enter__(self) -> LockWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def take(self) -> LockWait | None:
        """What was seen since the last take, if anything."""
        seen, self._seen = self._seen, None
        return seen

    def _watch(self) -> None:
        if self._over.wait(_SECONDS):
            return
        try:
            with dedicated(self._engine, "fleet lock watch") as connection:
                self._look(connection)
                while not self._over.wait(_SECONDS):
                    self._look(connection)
        except psycopg.OperationalError:
            return

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        rows = connection.execute(_LOOK, (self._pid,)).fetchall()
        if rows:
            more = [f"{len(rows) - _MOST} more"] if len(rows) > _MOST else []
            self._seen = LockWait(rows[0][0], ", ".join([*(_holder(*row[1:]) for row in rows[:_MOST]), *more]))


def _holder(pid: int, user: str | None, program: str | None, state: str | None, since: datetime | None) -> str:
    if user is None:
        return "a prepared transaction" if pid == 0 else f"pid {pid}"
    told = [f"{program or 'a session'} of {user}"]
    if state:
        told.append(state)
    if since is not None:
        told.append(f"its transaction open since {since.astimezone(UTC):%H:%M:%S} UTC")
    return f"pid {pid} ({', '.join(told)})"
