"""A run of the application's own is explained by its row in `fleet_runs` and by the message that works on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from fleet import Budget, Lane, Retry, queue
from fleet import app as application
from fleet.app import App
from fleet.broker import FleetBroker
from fleet.explain import Explanation, NothingNamed, explain
from fleet.settings import Settings
from fleet.storage.engine import psycopg_url
from middleware import default_order
from tests.fleet.conftest import MINIMAL, Fleet

SECOND = timedelta(seconds=1)
BUDGET = Budget(SECOND, 2 * SECOND, because="nothing is run by these tests")
RETRY = Retry(attempts=1, first=SECOND, longest=SECOND)
LANE = Lane("imports", ["work"], "a test", processes=1, threads=1, budget=BUDGET, retry=RETRY)  # type: ignore[arg-type]
COLUMNS = """kind text, id text, status text, done bigint, total bigint, outcome text, needs_review boolean,
updated_at timestamptz"""
LEASE = ", open boolean, lease_message text, lease_until timestamptz"


@pytest.fixture
def database(database_url: str) -> Iterator[Engine]:
    engine = create_engine(psycopg_url(database_url), isolation_level="AUTOCOMMIT")
    yield engine
    with engine.connect() as connection:
        connection.execute(text("DROP TABLE IF EXISTS fleet_runs"))
    engine.dispose()


@pytest.fixture
def broker(redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> FleetBroker:
    settings = Settings(redis_url=redis_url, namespace=namespace, database_url=None)
    made = FleetBroker(lambda: settings, middleware=default_order())
    monkeypatch.setattr(application, "process_broker", lambda: made)
    monkeypatch.setattr(application, "settings", lambda: settings)
    queue("work").actor(name="read_file")(lambda: None)
    return made


def put(database: Engine, columns: str = COLUMNS + LEASE, **row: Any) -> None:
    given = {"kind": "import", "id": "17", "status": "running", "needs_review": False, **row}
    lease = given.pop("lease", None)
    names = ", ".join([*given, "updated_at", *(["lease_until"] if lease is not None else [])])
    values = ", ".join([f":{name}" for name in given] + ["now() - interval '3 minutes'"])
    values += "" if lease is None else ", now() + CAST(:lease AS interval)"
    with database.connect() as connection:
        connection.execute(text(f"CREATE TABLE IF NOT EXISTS fleet_runs ({columns})"))
        more = {} if lease is None else {"lease": lease}
        connection.execute(text(f"INSERT INTO fleet_runs ({names}) VALUES ({values})"), {**given, **more})


def explained(broker: FleetBroker, database: Engine, wanted: str = "17") -> list[Explanation]:
    app = App(Path(), broker.actors, (LANE,), ())  # type: ignore[arg-type]
    return explain(app, broker, wanted, database)


def test_a_run_says_how_far_it_is_and_where_the_message_stands_that_works_on_it(
    broker: FleetBroker, database: Engine
) -> None:
    message = broker.enqueue(broker.actors["read_file"].message())
    put(database, done=340, total=1772, lease_message=message.message_id, lease=timedelta(minutes=5), open=True)
    [found] = explained(broker, database)
    assert (found.kind, found.name) == ("run", "import/17")
    assert re.fullmatch(r"It is running, for 3m(\d+s)?, 340 of 1,772 done\.", found.lines[0])
    assert found.lines[1].startswith("Its lease ends in ")
    assert found.lines[2] == (
        f"Its message waits first of 1 in work: `fleet explain {message.options['redis_message_id']}`."
    )


def test_a_run_whose_lease_lapsed_says_who_frees_it(broker: FleetBroker, database: Engine) -> None:
    put(database, lease_message="gone", lease=timedelta(minutes=-5), open=True)
    [found] = explained(broker, database)
    assert re.search(r"lapsed 5m(\d+s)? ago: a janitor's next pass frees it", found.lines[1])
    assert found.lines[2].startswith("Its message gone stands in no queue")


def test_a_run_that_waits_for_a_person_says_so(broker: FleetBroker, database: Engine) -> None:
    put(database, kind="filing", status="needs_review", outcome="the authority did not answer", needs_review=True)
    [found] = explained(broker, database)
    assert found.lines[1:] == (
        "Its outcome: the authority did not answer",
        "It WAITS FOR A PERSON: nobody but one who looks can say whether it happened, and nothing repeats it.",
    )


def test_an_outcome_is_scrubbed_as_the_log_is_before_it_is_cut(broker: FleetBroker, database: Engine) -> None:
    outcome = f"{'x ' * 70}not for Frau Erika Musterfrau of DE89 3704 0044 0532 0130 00"
    put(database, status="failed", outcome=outcome, open=False)
    [found] = explained(broker, database)
    assert found.lines[1].startswith("Its outcome: x x ") and "not for [person]" in found.lines[1]
    assert "Erika" not in str(found) and "DE89" not in str(found)


def test_two_runs_with_one_id_are_both_explained_and_a_kind_chooses_one(broker: FleetBroker, database: Engine) -> None:
    put(database, kind="import")
    put(database, kind="prepare", status="done", open=False)
    assert [one.name for one in explained(broker, database)] == ["import/17", "prepare/17"]
    [found] = explained(broker, database, "prepare/17")
    assert found.lines[-1] == "It has ended; nothing works on it any more."


def test_a_table_without_leases_is_enough_and_one_without_runs_has_none(broker: FleetBroker, database: Engine) -> None:
    with pytest.raises(NothingNamed):
        explained(broker, database)
    put(database, COLUMNS, status="queued")
    [found] = explained(broker, database)
    assert len(found.lines) == 1 and found.lines[0].startswith("It is queued, for 3m")


def test_a_database_that_is_slow_or_away_is_said_and_hides_nothing_else(
    database: Engine, fleet: Fleet, redis_url: str, namespace: str
) -> None:
    with database.connect() as connection:
        connection.execute(text("CREATE VIEW fleet_runs AS SELECT pg_sleep(30)::text AS id, 'import' AS kind"))
    slow = database.url.render_as_string(hide_password=False)
    for url, why in ((slow, "statement timeout"), ("postgresql://nobody@127.0.0.1:1/nothing", "failed")):
        settings = {"FLEET_REDIS_URL": redis_url, "FLEET_NAMESPACE": namespace, "FLEET_DATABASE_URL": url}
        told = fleet(MINIMAL, "explain", "greetings", **settings)
        assert told.stdout.startswith("lane greetings\n")
        assert "Runs could not be looked for, in PostgreSQL: " in told.stderr and why in told.stderr
    with database.connect() as connection:
        connection.execute(text("DROP VIEW fleet_runs"))
