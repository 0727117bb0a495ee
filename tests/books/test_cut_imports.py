"""An import over its budget in a real worker process: it says how far it came, is told of, and goes on to its end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dramatiq import Message

from books import uploads
from books.models import ImportJob, ImportStatus
from books.uploads import What
from fleet.broker.broker import FleetBroker
from tests.books import test_importing
from tests.books.test_summaries import job_for, sent
from tests.books.test_summaries import mails as mails
from tests.conftest import ROOT
from tests.waiting import wait_until

ROWS = 20_000


@pytest.fixture
def lane(mails: Path, environment: object, tmp_path: Path) -> Iterator[None]:
    """`fleet work housekeeping`, the bookkeeping's own."""
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-m", "fleet", "--app", str(ROOT), "work", "housekeeping"]
        worker = subprocess.Popen(command, env={**os.environ}, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    yield
    worker.terminate()
    worker.wait(60)


@pytest.mark.timeout(180)
def test_an_import_over_its_budget_is_told_of_and_continued_without_a_row_twice(
    environment: Any, lane: None, mails: Path, tmp_path: Path
) -> None:
    path = tmp_path / "long.csv"
    path.write_text("Date,Amount\n" + "2026-03-02,1\n" * ROWS)
    job = job_for(path)
    sender = FleetBroker(url=environment.redis_url, namespace=environment.namespace)
    first = test_importing.job_for(
        tmp_path / "none.csv"
    )  # so that the short budget goes to rows, not to Python imports
    sender.enqueue(Message("housekeeping", "import_csv", (first,), {}, {}))
    wait_until(lambda: test_importing.now(first).status == ImportStatus.FAILED, 60)
    sender.enqueue(Message("housekeeping", "import_csv", (job,), {}, {"time_limit": 1_200}))

    def ended() -> ImportJob | None:
        found = test_importing.now(job)
        return found if found.status in (ImportStatus.FAILED, ImportStatus.DONE) else None

    cut = wait_until(ended, 60)
    said = f"timed out after {cut.rows_done}( of {ROWS})?: split the file and try again"
    assert re.fullmatch(said, cut.outcome or ""), cut.outcome
    assert cut.rows_done < ROWS
    assert test_importing.stored(job) == cut.rows_done
    wait_until(lambda: sent(mails) == {f"import-{job}-1": 1}, 30)

    uploads.go_on(What.IMPORT, job)
    done = wait_until(ended, 100)
    assert (done.status, done.outcome) == (ImportStatus.DONE, f"{ROWS} rows")
    assert test_importing.stored(job) == ROWS
    wait_until(lambda: sent(mails) == {f"import-{job}-1": 1, f"import-{job}-2": 1}, 30)
    sender.client.close()
