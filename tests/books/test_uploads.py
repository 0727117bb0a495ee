"""`python -m books.uploads`: what failed is shown, and goes on when a person says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import delete

from books import importing
from books.models import ImportJob, ImportStatus
from fleet import app as application
from fleet.storage import session
from tests.books.taken import waiting
from tests.books.test_importing import job_for, now
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def books(migrated: object) -> None:
    application.load(ROOT)
    with session() as s:
        s.execute(delete(ImportJob))


def uploads(*command: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "books.uploads", *command]
    return subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_what_failed_is_listed_and_goes_on_once(tmp_path: Path) -> None:
    job = job_for(tmp_path / "a.csv")
    importing.import_csv(job, token="m1")
    assert f"import {job}  it cannot be opened (No such file or directory); upload it again" in uploads("list").stdout
    assert uploads("go-on", "import", str(job)).stdout == f"import {job} goes on.\n"
    assert [message.args[0] for message in waiting("import_csv")] == [job]
    assert (now(job).status, now(job).attempts) == (ImportStatus.QUEUED, 0)
    again = uploads("go-on", "import", str(job))
    assert again.returncode == 1
    assert f"uploads: import {job} is queued, and only one that failed goes on" in again.stderr
