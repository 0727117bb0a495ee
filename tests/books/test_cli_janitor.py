"""`fleet janitor list | run`: what a person sees, and that a dry run changes nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from sqlalchemy import func, text

from books.models import BankAccount, RunKind
from fleet import audit
from fleet.app import process_broker
from fleet.storage import session
from tests.books.test_recovery import account, add, csv, document, run, status
from tests.books.test_recovery import books as books
from tests.broker.letters import fill
from tests.conftest import ROOT, Environment

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def fleet(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fleet", "janitor", *command], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


def everything(environment: Environment) -> dict[str, Any]:
    """Every row of every table, and every key of the namespace."""
    found: dict[str, Any] = {}
    with session() as s:
        tables = s.scalars(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")).all()
        for table in tables:
            found[table] = sorted(s.scalars(text(f"SELECT t::text || xmin::text FROM {table} t")).all())
    with redis.Redis.from_url(environment.redis_url) as client:
        for key in client.scan_iter(f"{environment.namespace}:*"):
            found[key.decode()] = client.dump(key)
    return found


@pytest.fixture
def stuck(books: Environment) -> int:
    """One of each kind that is stuck; the account's id."""
    add(document(), attempts=5)
    add(run(RunKind.PREPARE))
    add(csv())
    fill(process_broker(), 3, "housekeeping", died=1_000.0)
    return add(account(), started_at=func.now() - timedelta(minutes=64))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("recover_stuck_syncs", ["BankAccount", "1h04m", "synced again: its worker is lost"]),
        ("requeue_stuck_runs", ["Attachment", "given up", "AgentRun", "queued again"]),
        ("finish_stuck_imports", ["ImportJob", "queued again"]),
        ("trim_dead_letters", ["3 letters of housekeeping", "dropped"]),
        ("reap_lost_workers", ["stuck=0"]),
        ("relay_outbox", ["stuck=0"]),
    ],
)
def test_a_dry_run_shows_what_would_become_of_what_and_changes_nothing(
    books: Environment, stuck: int, name: str, shown: list[str]
) -> None:
    before = everything(books)
    said = fleet("run", name, "--dry-run")
    assert said.returncode == 0, said.stderr
    for part in [*shown, "Nothing was changed."]:
        assert part in said.stdout
    assert everything(books) == before


def test_a_run_is_a_pass_and_says_its_line(books: Environment, stuck: int) -> None:
    name = "recover_stuck_syncs"
    said = fleet("run", name)
    assert said.returncode == 0, said.stderr
    assert "acted; 1 of 1 recovered, 0 failed" in said.stdout
    assert "janitor=recover_stuck_syncs verdict=acted scanned=1 stuck=1 recovered=1 failed=0" in said.stderr
    assert status(BankAccount, stuck) == "idle"
    (row,) = audit.read(process_broker(), 5)
    assert (row.what, row.subject, row.after) == ("janitor run", name, "acted; 1 of 1 recovered, 0 failed")


def test_a_name_that_no_janitor_has_is_answered_with_the_one_that_was_meant(books: Environment) -> None:
    said = fleet("run", "recover_stuck_sync")
    assert said.returncode == 2
    assert (
        said.stderr.strip()
        == "fleet: There is no janitor named 'recover_stuck_sync'. Did you mean 'recover_stuck_syncs'?"
    )


def test_the_list_needs_no_server_and_says_when_each_runs_and_where_the_runbook_tells_of_it() -> None:
    said = fleet("list")
    assert said.returncode == 0, said.stderr
    (line,) = [line for line in said.stdout.splitlines() if "requeue_stuck_runs" in line]
    assert "*/10 * * * *" in line and "#requeue_stuck_runs" in line and "Queues runs" in line
