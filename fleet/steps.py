"""How long model and tool calls take, by actor and by what was called, from an application's own record of steps.

The engine knows no application's tables. One that keeps steps says so with a table or a view `fleet_steps`, which a
migration of its own makes, one row a step:

    job text, actor text, kind text, called text, took interval, ended_at timestamptz

`job` is the message that the step was taken for, `kind` is `model` or `tool` (or what it likes), `called` the model's
or the tool's name; `actor` and `called` may be null, where they are not known. `ended_at` is real time.

Not guaranteed: that steps of jobs which died are in it; what an application did not store is not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError

from fleet.errors import FleetError

TABLE = "fleet_steps"
_COLUMNS = "job, actor, kind, called, took, ended_at"
_BY_CALLED = text(f"""
SELECT actor, kind, called, count(*), max(took), percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY took)
FROM {TABLE} WHERE ended_at > now() - CAST(:window AS interval)
GROUP BY actor, kind, called ORDER BY actor, kind, count(*) DESC, called
""")
_BY_JOB = text(f"""
WITH seen AS (SELECT {_COLUMNS} FROM {TABLE} WHERE ended_at > now() - CAST(:window AS interval) AND actor IS NOT NULL),
of_job AS (SELECT actor, kind, job, count(*) AS steps FROM seen GROUP BY actor, kind, job),
most AS (SELECT actor, kind, max(steps) AS steps FROM of_job GROUP BY actor, kind)
SELECT actor, kind, count(*), percentile_disc(0.999) WITHIN GROUP (ORDER BY took), max(most.steps)
FROM seen JOIN most USING (actor, kind) GROUP BY actor, kind ORDER BY actor, kind
""")


class StepsUnreadable(FleetError):
    """Raised when the database has no table or view of steps, or one that lacks a column."""


@dataclass(frozen=True)
class Called:
    """How long the calls took that an actor made of one model or tool; `count` of them."""

    actor: str | None
    kind: str
    called: str | None
    count: int
    median: timedelta
    p95: timedelta
    p99: timedelta
    longest: timedelta


@dataclass(frozen=True)
class StepsOfJobs:
    """Steps of one kind that an actor took: their p99.9, and the `most` of them that one job took."""

    actor: str
    kind: str
    count: int
    p999: timedelta
    most: int


def by_called(connection: Connection, window: timedelta) -> list[Called]:
    """What ended within the window, by actor, kind and what was called, the most frequent first.

    Raises `StepsUnreadable`.
    """
    return [
        Called(actor, kind, called, count, ranks[0], ranks[1], ranks[2], longest)
        for actor, kind, called, count, longest, ranks in _rows(connection, _BY_CALLED, window)
    ]


def by_job(connection: Connection, window: timedelta) -> list[StepsOfJobs]:
    """What ended within the window, by actor and kind; raises `StepsUnreadable`."""
    return [StepsOfJobs(*row) for row in _rows(connection, _BY_JOB, window)]


def kept(connection: Connection) -> bool:
    """Whether the application keeps steps where the engine looks for them."""
    return connection.scalar(text(f"SELECT to_regclass('{TABLE}')")) is not None


def _rows(connection: Connection, asked: Any, window: timedelta) -> Sequence[Any]:
    try:
        return connection.execute(asked, {"window": window}).all()
    except ProgrammingError as error:
        reason = str(error.orig).splitlines()[0]
        raise StepsUnreadable(
            f"No steps can be read ({reason}). An application that keeps some makes a table or view {TABLE} with the "
            f"columns {_COLUMNS}; if yours does, run `fleet migrate`."
        ) from None
