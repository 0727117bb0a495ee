"""Budgets are judged by what jobs were seen to need, and only where that was seen often enough."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Connection, create_engine, text

from fleet import Budget, Entry, Lane, Retry
from fleet.advice import FEWEST, Advice, judged
from fleet.app import App
from fleet.storage.engine import psycopg_url
from fleet.storage.tables import EngineBase, Slot
from tests.fleet.conftest import Fleet, WriteApp

SECOND = timedelta(seconds=1)
MAKE = "CREATE TABLE fleet_steps (job text, actor text, kind text, called text, took interval, ended_at timestamptz)"
PUT = """
INSERT INTO fleet_steps SELECT 'job ' || n / :a_job, :actor, :kind, 'large', :took * interval '1 second', now()
FROM generate_series(0, :count - 1) AS n
"""
END = """
INSERT INTO slots (entry, slot, state, nonce, token, message_id, started_at, ended_at)
SELECT :entry, now() - n * interval '1 minute', :state, '', '', '', now() - :took * interval '1 second', now()
FROM generate_series(:first, :first + :count - 1) AS n
"""
RETRY = Retry(attempts=1, first=SECOND, longest=SECOND)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    engine = create_engine(psycopg_url(database_url), isolation_level="AUTOCOMMIT")
    EngineBase.metadata.create_all(engine, tables=[cast("Any", Slot.__table__)])
    with engine.connect() as made:
        made.execute(text("TRUNCATE slots"))
        made.execute(text("DROP TABLE IF EXISTS fleet_steps"))
        made.execute(text(MAKE))
        yield made
    engine.dispose()


class Actor:
    """What is read of an actor."""

    def __init__(self, name: str, soft: timedelta | None) -> None:
        self.actor_name, self.queue_name = name, "work"
        self.budget = budget(soft) if soft is not None else None


def budget(soft: timedelta) -> Budget:
    return Budget(soft, 2 * soft, because="the slowest answer ever seen")


def app(*, lane: timedelta = 60 * SECOND, **soft: timedelta | None) -> App:
    actors = cast("dict[str, Any]", {name: Actor(name, own) for name, own in soft.items()})
    work = Lane("work", ("work",), "nobody", 1, 1, budget=budget(lane), retry=RETRY)
    entry = Entry("nightly", actor="ask", cron="* * * * *", expires=SECOND, because="banks have closed their day")
    return App(Path(), actors, (work,), (entry,))


def step(connection: Connection, took: float, count: int = FEWEST, *, a_job: int = 1, **more: str) -> None:
    put = {"actor": "ask", "kind": "model", **more, "took": took, "count": count, "a_job": a_job}
    connection.execute(text(PUT), put)


def end(
    connection: Connection, took: float, count: int, state: str = "done", first: int = 0, entry: str = "nightly"
) -> None:
    given = {"entry": entry, "took": took, "count": count, "state": state, "first": first}
    connection.execute(text(END), given)


def verdicts(found: list[Advice]) -> dict[str, tuple[str | None, float]]:
    return {advice.actor: (advice.verdict, advice.need.total_seconds()) for advice in found}


def test_a_job_needs_the_slowest_of_its_steps_as_often_as_one_job_takes_them(connection: Connection) -> None:
    step(connection, 5, a_job=8)
    step(connection, 0.5, a_job=4, kind="tool")
    assert verdicts(judged(app(ask=41 * SECOND), connection)) == {"ask": ("under", 42.0)}
    assert verdicts(judged(app(ask=42 * SECOND), connection)) == {"ask": (None, 42.0)}
    assert verdicts(judged(app(ask=420 * SECOND), connection)) == {"ask": (None, 42.0)}
    assert verdicts(judged(app(ask=421 * SECOND), connection)) == {"ask": ("far over", 42.0)}


def test_an_actor_without_a_budget_of_its_own_is_judged_by_its_lanes(connection: Connection) -> None:
    step(connection, 61)
    assert verdicts(judged(app(ask=None), connection)) == {"ask": ("under", 61.0)}


def test_one_in_a_thousand_may_take_longer_and_two_may_not(connection: Connection) -> None:
    step(connection, 5, 1_999)
    step(connection, 90, 1)
    assert judged(app(ask=SECOND), connection)[0].parts[0].each == 5 * SECOND
    step(connection, 90, 2)
    assert judged(app(ask=SECOND), connection)[0].parts[0].each == 90 * SECOND


def test_of_what_was_seen_too_seldom_nothing_is_said(connection: Connection) -> None:
    step(connection, 90, FEWEST - 1)
    step(connection, 90, FEWEST, actor="rare")
    step(connection, 90, 1, actor="rare", kind="tool")
    step(connection, 90, FEWEST, actor="gone")
    assert judged(app(ask=SECOND, rare=SECOND), connection) == []


def test_an_actor_of_the_schedule_is_judged_by_its_slots(connection: Connection) -> None:
    end(connection, 3, FEWEST - 2)
    end(connection, 1_000, 5, state="failed", first=2_000)
    assert judged(app(ask=SECOND), connection) == []
    end(connection, 20, 2, state="deadline", first=3_000)
    assert verdicts(judged(app(ask=19 * SECOND), connection)) == {"ask": ("under", 20.0)}
    step(connection, 5)
    assert verdicts(judged(app(ask=19 * SECOND), connection)) == {"ask": (None, 5.0)}


def test_an_application_that_keeps_no_steps_is_judged_by_its_slots_alone(connection: Connection) -> None:
    connection.execute(text("DROP TABLE fleet_steps"))
    end(connection, 3, FEWEST)
    assert verdicts(judged(app(ask=SECOND), connection)) == {"ask": ("under", 3.0)}


def test_the_command_names_what_does_not_fit_and_how_many_were_judged(
    connection: Connection, fleet: Fleet, write_app: WriteApp, database_url: str, redis_url: str
) -> None:
    root = write_app(actors="@greetings.actor\ndef greet_often(): ...\n")
    where = {"FLEET_REDIS_URL": redis_url, "FLEET_DATABASE_URL": database_url}
    step(connection, 0.6, a_job=2, actor="greet")
    step(connection, 0.5, actor="greet_often")
    shown = " ".join(fleet(root, "jobs", "--advise", **where).stdout.split())
    assert "greet" in shown and "1.2s" in shown and "p99.9 600ms x 2" in shown and "under" in shown
    assert "greet_often" not in shown
    assert "2 of 2 actors were judged: those of which 1,000 steps of each kind, or else 1,000 slots" in shown


def test_a_fleet_is_judged_by_its_own_slots_alone(
    connection: Connection, fleet: Fleet, write_app: WriteApp, database_url: str, redis_url: str
) -> None:
    root = write_app(schedule="[entry('greet')]")
    where = {"FLEET_REDIS_URL": redis_url, "FLEET_DATABASE_URL": database_url, "FLEET_NAMESPACE": "books"}
    end(connection, 3, FEWEST, entry="greet")
    end(connection, 3, FEWEST, entry="others/greet")
    assert "0 of 1 actors were judged" in " ".join(fleet(root, "jobs", "--advise", **where).stdout.split())
    end(connection, 3, FEWEST, entry="books/greet")
    assert "1 of 1 actors were judged" in " ".join(fleet(root, "jobs", "--advise", **where).stdout.split())
