"""The application's own runs and imports, where it shows them to the engine: what state each is in, and how far.

The engine knows no application's tables. One that shows them says so with a table or a view `fleet_runs`, which a
migration of its own makes, one row a run:

    kind text, id text, status text, done bigint, total bigint, outcome text, needs_review boolean, open boolean,
    updated_at timestamptz

and perhaps `lease_message text, lease_until timestamptz`, the message that works on it (`fleet.explain` shows it).
`done` of `total` is how far it came, null where that is not counted; `open` says that it has not ended; `needs_review`
that it waits for a person. `outcome` is one sentence, and nothing in a row is personal: the application sees to that.
`updated_at` is real time.

Not guaranteed: that rows are cheap to count; only open ones and those that wait for a person are. Nor that the last
scrubbing, before an outcome is shown, takes a name out that the application left in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError

from fleet.errors import FleetError

TABLE = "fleet_runs"
_COLUMNS = "kind, id, status, done, total, outcome, needs_review, open, updated_at"
_COUNTED = text(f"""
SELECT kind, status, needs_review, count(*), min(updated_at) FROM {TABLE} WHERE open OR needs_review
GROUP BY kind, status, needs_review ORDER BY needs_review DESC, kind, status
""")
# Each is a condition of its own: `OR` over parameters would keep PostgreSQL from the application's indexes.
_CONDITIONS = {
    "kind": "kind = :kind",
    "status": "status = :status",
    "review": "needs_review = :review",
    "open": "open = :open",
    "before": "updated_at < :before",
}


class RunsUnreadable(FleetError):
    """Raised when the database has no table or view of runs, or one that lacks a column."""


@dataclass(frozen=True)
class Run:
    """A run; `done` of `total` is None where nobody counts."""

    kind: str
    id: str
    status: str
    done: int | None
    total: int | None
    outcome: str | None
    needs_review: bool
    open: bool
    updated_at: datetime | None


@dataclass(frozen=True)
class Standing:
    """So many runs of a kind in a state, and since when the oldest has been in it."""

    kind: str
    status: str
    needs_review: bool
    count: int
    since: datetime | None


def kept(connection: Connection) -> bool:
    """Whether the application shows runs where the engine looks for them."""
    return connection.scalar(text(f"SELECT to_regclass('{TABLE}')")) is not None


def standing(connection: Connection) -> list[Standing]:
    """The runs that have not ended or wait for a person, counted; those for a person first. Raises `RunsUnreadable`."""
    return [Standing(*row) for row in _rows(connection, _COUNTED, {})]


def latest(connection: Connection, most: int, **only: Any) -> list[Run]:
    """The runs that changed last, newest first; `only` those of a kind, status, review, open or before an instant.

    Raises `RunsUnreadable`.
    """
    given = {name: value for name, value in only.items() if value is not None}
    where = " AND ".join(_CONDITIONS[name] for name in given) or "true"
    asked = text(f"SELECT {_COLUMNS} FROM {TABLE} WHERE {where} ORDER BY updated_at DESC LIMIT :most")
    return [Run(*row) for row in _rows(connection, asked, {**given, "most": most})]


def _rows(connection: Connection, asked: Any, given: dict[str, Any]) -> Sequence[Any]:
    try:
        return connection.execute(asked, given).all()
    except ProgrammingError as error:
        reason = str(error.orig).splitlines()[0]
        raise RunsUnreadable(
            f"No runs can be read ({reason}). An application that shows some makes a table or view {TABLE} with the "
            f"columns {_COLUMNS}; if yours does, run `fleet migrate`."
        ) from None
