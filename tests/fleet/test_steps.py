"""How long model and tool calls took is read from whatever an application shows as `fleet_steps`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text

from fleet.steps import Called, StepsOfJobs, StepsUnreadable, by_called, by_job, kept
from fleet.storage.engine import psycopg_url
from tests.fleet.conftest import MINIMAL, Fleet

SECOND = timedelta(seconds=1)
WEEK = timedelta(days=7)
MAKE = """
CREATE TABLE fleet_steps (job text, actor text, kind text, called text, took interval, ended_at timestamptz)
"""


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    engine = create_engine(psycopg_url(database_url), isolation_level="AUTOCOMMIT")
    with engine.connect() as made:
        made.execute(text("DROP TABLE IF EXISTS fleet_steps"))
        made.execute(text(MAKE))
        yield made
    engine.dispose()


def took(connection: Connection, *seconds: float, ago: timedelta = timedelta(0), **step: Any) -> None:
    row = {"job": "j1", "actor": "ask", "kind": "model", "called": "large", **step}
    put = "INSERT INTO fleet_steps VALUES (:job, :actor, :kind, :called, :took, now() - CAST(:ago AS interval))"
    connection.execute(text(put), [{**row, "took": one * SECOND, "ago": ago} for one in seconds])


def test_calls_are_ranked_by_actor_and_by_what_was_called(connection: Connection) -> None:
    took(connection, *range(1, 101))
    took(connection, 0.5, kind="tool", called="look_up")
    took(connection, 7, actor=None, called=None)
    assert by_called(connection, WEEK) == [
        Called("ask", "model", "large", 100, 50 * SECOND, 95 * SECOND, 99 * SECOND, 100 * SECOND),
        Called("ask", "tool", "look_up", 1, *[SECOND / 2] * 4),
        Called(None, "model", None, 1, *[7 * SECOND] * 4),
    ]


def test_what_ended_before_the_window_does_not_count(connection: Connection) -> None:
    took(connection, 1, 2, ago=timedelta(days=6))
    took(connection, 90, ago=timedelta(days=8))
    assert [calls.longest for calls in by_called(connection, WEEK)] == [2 * SECOND]
    assert [steps.count for steps in by_job(connection, WEEK)] == [2]


def test_of_jobs_the_most_steps_of_a_kind_that_one_of_them_took_are_known(connection: Connection) -> None:
    took(connection, 1, 2, 3)
    took(connection, 9, job="j2")
    took(connection, 0.1, kind="tool", job="j2")
    took(connection, 8, actor=None)
    assert by_job(connection, WEEK) == [
        StepsOfJobs("ask", "model", 4, 9 * SECOND, most=3),
        StepsOfJobs("ask", "tool", 1, SECOND / 10, most=1),
    ]


def test_where_there_are_no_steps_one_sentence_says_what_they_look_like(connection: Connection) -> None:
    assert kept(connection)
    connection.execute(text("ALTER TABLE fleet_steps DROP COLUMN took"))
    with pytest.raises(StepsUnreadable, match=r'column "took" does not exist.*job, actor, kind, called, took'):
        by_called(connection, WEEK)
    connection.execute(text("DROP TABLE fleet_steps"))
    assert not kept(connection)
    with pytest.raises(StepsUnreadable, match='"fleet_steps" does not exist'):
        by_job(connection, WEEK)


def test_the_command_prints_them_and_refuses_a_window_that_is_none(
    connection: Connection, fleet: Fleet, database_url: str, redis_url: str
) -> None:
    where = {"FLEET_REDIS_URL": redis_url, "FLEET_DATABASE_URL": database_url}
    took(connection, 0.34, 5.2, 35, called="[red]large")
    shown = fleet(MINIMAL, "steps", **where).stdout
    for part in ("Steps of the last 7d", "ask", "model", "[red]large", " 3 ", "5.2s", "35s"):
        assert part in shown
    connection.execute(text("TRUNCATE fleet_steps"))
    assert "none" in fleet(MINIMAL, "steps", "--window", "12h", **where).stdout
    refused = fleet(MINIMAL, "steps", "--window", "a week", **where)
    assert refused.returncode == 2
    assert refused.stderr == "fleet: --window 'a week': give days, hours or minutes, for example 7d, 12h or 30m.\n"
