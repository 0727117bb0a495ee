"""The view `fleet_runs`: what the bookkeeping shows the engine of its runs, and that asking it stays cheap."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, delete, select, text, update
from sqlalchemy.exc import IntegrityError

from books import agent_runs, importing
from books.models import AgentRun, AgentStep, ImportJob, ImportRowError, OutsideEffect, RunKind, RunStatus, Transaction
from fleet import app as application
from fleet import runs
from fleet.app import App, process_broker
from fleet.explain import explain
from fleet.runs import Run, RunsUnreadable
from fleet.storage import database, session
from tests.books import test_agent_runs, test_importing
from tests.conftest import ROOT, Environment

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


HEADINGS = "Datum;Betrag;Name\n"
FILES = {
    "no headings": "Erika Musterfrau;Miete Maerz;-1240,50\nErika Musterfrau;Miete April;-1240,50\n",
    "a column that is shifted": f"{HEADINGS}02.03.2026;Erika Musterfrau;-1240,50\n02.03.2026;1,00;Miete\n",
    "a name in every cell that is judged": f"{HEADINGS}Erika;Miete;x\n03/02/2026;Musterfrau;x\nMaerz's;Erika;x\n",
    "no text at all": "\0\0Erika Musterfrau",
    "a cell without an end": f'{HEADINGS}02.03.2026;1,00;x\n02.03.2026;1,00;"Erika Musterfrau' + "x" * 200_000,
}
IN_THEM = ("Erika", "Muster", "Miete", "Maerz", "1240,", "03/02")


@pytest.fixture
def house(migrated: Environment) -> Iterator[App]:
    """The application, whose tables are empty again afterwards."""
    yield application.load(ROOT)
    with session() as s:
        for model in (ImportRowError, ImportJob, Transaction, OutsideEffect, AgentStep, AgentRun):
            s.execute(delete(model))


def shown(house: App, run: str) -> str:
    """All that anybody with a read token can see of a run: its rows of the view, and its explanation."""
    with database().connect() as connection:
        rows = [dict(row) for row in connection.execute(text("SELECT * FROM fleet_runs")).mappings()]
    explained = explain(house, process_broker(), run, database())
    return f"{rows} {explained}"


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_no_cell_of_a_customers_file_is_shown_and_its_owner_is_told_what_was_found(
    house: App, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "Musterfrau.csv"
    path.write_text(content)
    job = test_importing.job_for(path)
    with session() as s:
        s.execute(update(ImportJob).where(ImportJob.id == job).values(email="erika@customer.example"))
    importing.import_csv(job, token="m1")
    seen = shown(house, f"import/{job}")
    assert [word for word in IN_THEM if word in seen] == []
    assert "Its outcome: " in seen
    with session() as s:
        told = s.scalars(select(OutsideEffect)).one().body["text"]
    assert any(word in told for word in IN_THEM)


def test_the_columns_and_rows_that_cannot_be_read_are_shown(house: App, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    behind_what_is_looked_at_for_binaries = "\n" * 70_000
    rows = ("Erika;1,00;x", "02.03.2026;Erika;x", "02.03.2026;\0;x", *["x;1,00;x"] * 9)
    path.write_text(HEADINGS + behind_what_is_looked_at_for_binaries + "\n".join(rows))
    job = test_importing.job_for(path)
    importing.import_csv(job, token="m1")
    found = "row 1: its date cannot be read; row 2: its amount cannot be read; row 3: it cannot be read; and 9 more"
    assert test_importing.now(job).outcome == f"0 of 12 rows, {found}"


def test_a_row_that_the_database_refuses_is_not_shown(house: App, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{HEADINGS}02.03.2026;-1240,50;Erika Musterfrau\n")
    job = test_importing.job_for(path)
    with session() as s:
        s.execute(text("ALTER TABLE transactions ADD CONSTRAINT no_erika CHECK (counterparty NOT LIKE 'Erika%')"))
    try:
        with pytest.raises(IntegrityError):
            importing.import_csv(job, token="m1")
    finally:
        with session() as s:
            s.execute(text("ALTER TABLE transactions DROP CONSTRAINT no_erika"))
    seen = shown(house, f"import/{job}")
    assert "will be tried again: (psycopg.errors.CheckViolation)" in seen
    assert [word for word in ("Erika", "Musterfrau") if word in seen] == []


def test_what_the_model_says_against_a_run_is_in_its_result_and_not_shown(house: App, world: Any) -> None:
    run = test_agent_runs.run(RunKind.SUBMIT, RunStatus.APPROVED)
    said = "STOP: Erika Musterfrau rented nothing out"
    world.reply = lambda *_: test_agent_runs.completion(said)
    agent_runs.check_approved(run, "m1", lambda s, run: pytest.fail("it passed"))
    assert "Erika" not in shown(house, f"submit/{run}")
    assert test_agent_runs.now(run).result == {"check": said}
