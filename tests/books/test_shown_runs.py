"""The view `fleet_runs`: what the bookkeeping shows the engine of its runs, and that asking it stays cheap."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, text

from fleet import runs
from fleet.runs import Run, RunsUnreadable
from fleet.storage import database
from tests.conftest import Environment

NOW = datetime.now(UTC)


@pytest.fixture
def connection(migrated: Environment) -> Iterator[Connection]:
    """A transaction that is rolled back."""
    with database().connect() as made:
        yield made
        made.rollback()


def agent_run(connection: Connection, status: str, *, kind: str = "submit", ago: int = 0) -> str:
    asked = text(
        "INSERT INTO agent_runs (kind, status, outcome, idempotency_key, customer, input, queued_at) "
        "VALUES (:kind, :status, 'because', :key, 'Ada Lovelace', '{}', :at) RETURNING id"
    )
    at = NOW - timedelta(minutes=ago)
    return str(connection.scalar(asked, {"kind": kind, "status": status, "key": uuid.uuid4().hex, "at": at}))


def test_a_run_is_shown_with_its_state_and_nothing_of_its_customer(connection: Connection) -> None:
    id = agent_run(connection, "needs_review")
    (run,) = runs.latest(connection, 5)
    assert run == Run("submit", id, "needs_review", None, None, "because", True, False, NOW)
    (row,) = connection.execute(text("SELECT * FROM fleet_runs")).mappings()
    assert "Ada" not in str(dict(row))


def test_an_upload_and_an_import_say_how_far_they_came(connection: Connection) -> None:
    connection.execute(
        text("INSERT INTO upload_batches (status, customer, files_total, files_done) VALUES ('reading', 'c', 95, 61)")
    )
    account = connection.scalar(
        text(
            "INSERT INTO bank_accounts (external_id, name, currency, customer, status) "
            "VALUES ('x', 'n', 'EUR', 'c', 'idle') RETURNING id"
        )
    )
    connection.execute(
        text(
            "INSERT INTO import_jobs (status, account_id, path, rows_total, rows_done, rows_failed) "
            "VALUES ('done_with_errors', :account, 'p', 1772, 1760, 12)"
        ),
        {"account": account},
    )
    found = {run.kind: run for run in runs.latest(connection, 5)}
    assert (found["upload"].done, found["upload"].total, found["upload"].open) == (61, 95, True)
    assert (found["import"].done, found["import"].total, found["import"].open) == (1772, 1772, False)


def test_what_is_open_or_for_a_person_is_counted_that_for_a_person_first(connection: Connection) -> None:
    for status, ago in (("running", 5), ("running", 9), ("needs_review", 3), ("passed", 1)):
        agent_run(connection, status, ago=ago)
    first, second = runs.standing(connection)
    assert (first.status, first.count, first.needs_review) == ("needs_review", 1, True)
    assert (second.status, second.count, second.since) == ("running", 2, NOW - timedelta(minutes=9))


def test_runs_are_chosen_and_paged(connection: Connection) -> None:
    for number, status in enumerate(("running", "passed", "needs_review", "failed")):
        agent_run(connection, status, ago=number)
    assert [run.status for run in runs.latest(connection, 2)] == ["running", "passed"]
    before = NOW - timedelta(minutes=1)
    assert [run.status for run in runs.latest(connection, 9, before=before)] == ["needs_review", "failed"]
    assert [run.status for run in runs.latest(connection, 9, review=True)] == ["needs_review"]
    assert [run.status for run in runs.latest(connection, 9, open=True, kind="submit")] == ["running"]
    assert runs.latest(connection, 9, kind="nothing") == []


def test_among_many_rows_none_of_the_questions_reads_them_all(connection: Connection) -> None:
    connection.execute(
        text(
            "INSERT INTO agent_runs (kind, status, idempotency_key, customer, input, queued_at) "
            "SELECT 'eval', CASE WHEN i % 1000 = 0 THEN 'needs_review' ELSE 'passed' END, gen_random_uuid()::text, "
            "'c', '{}', now() - i * interval '1 minute' FROM generate_series(1, 20000) i"
        )
    )
    connection.execute(text("ANALYZE agent_runs"))
    for asked in (
        "SELECT * FROM fleet_runs ORDER BY updated_at DESC LIMIT 50",
        "SELECT * FROM fleet_runs WHERE needs_review = true ORDER BY updated_at DESC LIMIT 50",
        "SELECT kind, count(*) FROM fleet_runs WHERE open OR needs_review GROUP BY kind",
        "SELECT * FROM fleet_runs WHERE id = '17'",
    ):
        plan = "\n".join(row[0] for row in connection.execute(text(f"EXPLAIN {asked}")))
        assert "Seq Scan on agent_runs" not in plan, plan


def test_a_database_without_the_view_says_what_to_make(connection: Connection) -> None:
    assert runs.kept(connection)
    connection.execute(text("DROP VIEW fleet_runs"))
    assert not runs.kept(connection)
    with pytest.raises(RunsUnreadable, match="makes a table or view fleet_runs with the columns kind, id, status"):
        runs.standing(connection)
