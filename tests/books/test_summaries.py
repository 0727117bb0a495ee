"""Whoever handed in a file or a batch gets one mail when it has ended, however it ended, and no second one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from dramatiq import Message
from sqlalchemy import delete, func, select, update

from books import attachments, batches, importing, recovery, summaries, uploads
from books.mail import MailNotSent
from books.models import Attachment, BatchStatus, EffectStatus, ImportJob, ImportStatus, OutsideEffect, UploadBatch
from books.outside.resolving import resolve
from books.seed_files import write_broken_csv
from books.uploads import NotFailed, What
from config.settings import settings
from fleet import app as application
from fleet import janitor
from fleet.errors import DeadlineExceeded
from fleet.storage import session
from tests.books import test_batches, test_importing
from tests.books.cut import cut
from tests.books.taken import deliver, waiting
from tests.conftest import ROOT

TO = "clerk@customer.example"


@pytest.fixture
def mails(migrated: object, mail_log: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The mail server's log, empty."""
    port = mail_log.with_suffix(".url").read_text().strip().rpartition(":")[2]
    monkeypatch.setenv("BOOKS_SMTP_PORT", port)
    settings.cache_clear()
    application.load(ROOT)
    mail_log.write_text("")
    with session() as s:
        for model in (OutsideEffect, Attachment, UploadBatch):
            s.execute(delete(model))
    yield mail_log
    settings.cache_clear()


def sent(log: Path) -> Counter[str]:
    """How often each mail was taken, by the server's log."""
    return Counter(json.loads(line)["idempotency_key"] for line in log.read_text().splitlines())


def job_for(path: Path) -> int:
    job = test_importing.job_for(path)
    with session() as s:
        s.execute(update(ImportJob).where(ImportJob.id == job).values(email=TO))
    return job


def batch(*statuses: str, status: str = BatchStatus.QUEUED) -> tuple[int, list[int]]:
    one, files = test_batches.batch(*statuses, status=status)
    with session() as s:
        s.execute(update(UploadBatch).where(UploadBatch.id == one).values(email=TO))
    return one, files


def effect() -> OutsideEffect:
    with session() as s:
        return s.scalars(select(OutsideEffect)).one()


def test_an_import_that_is_done_is_told_once_also_when_every_message_comes_twice(mails: Path, tmp_path: Path) -> None:
    job = job_for(write_broken_csv(tmp_path / "kassenbuch.csv", 1, date(2026, 3, 2)))
    importing.import_csv(job, token="m1")
    importing.import_csv(job, token="m1")
    deliver()
    deliver()
    assert sent(mails) == {f"import-{job}-1": 1}
    (line,) = map(json.loads, mails.read_text().splitlines())
    assert (line["to"], line["subject"]) == ([TO], "Import of kassenbuch.csv: done, with errors")
    assert effect().body["text"] == "1771 of 1772 rows, row 341: amount '12,x4' is no number\n"
    assert effect().status == EffectStatus.DONE


def test_a_file_that_is_no_csv_is_told_with_its_name_and_its_first_line(mails: Path, tmp_path: Path) -> None:
    path = tmp_path / "brief.csv"
    path.write_text("Sehr geehrte Damen und Herren\n")
    importing.import_csv(job_for(path), token="m1")
    told = "brief.csv: the first line is 'Sehr geehrte Damen und Herren', without a column for date and amount; "
    assert effect().body["text"] == f"{told}name it 'date' or 'booking date' or 'datum'.\n"


def test_an_import_without_an_address_is_told_to_nobody(mails: Path, tmp_path: Path) -> None:
    importing.import_csv(test_importing.job_for(tmp_path / "none.csv"), token="m1")
    assert waiting("mail_summary") == []


def timed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    job = job_for(write_broken_csv(tmp_path / "broken.csv", 2, date(2026, 3, 2)))
    left = iter(range(5))

    def check() -> None:
        if next(left, None) is None:
            raise DeadlineExceeded("the soft budget is used up")

    with monkeypatch.context() as patch:
        patch.setattr("books.importing.deadline.check", check)
        cut(timedelta(minutes=1), importing.import_csv, importing.import_lost, job, token="m1")
    return job


def test_an_import_that_timed_out_is_told_and_told_again_when_a_person_had_it_go_on_to_its_end(
    mails: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = timed_out(tmp_path, monkeypatch)
    importing.import_lost(Message("q", "import_csv", (job,), {}, {}, message_id="m1"), "hard budget")
    assert effect().body["text"] == "timed out after 500 of 1772: split the file and try again\n"
    deliver()
    assert sent(mails) == {f"import-{job}-1": 1}
    uploads.go_on(What.IMPORT, job)
    with pytest.raises(NotFailed, match="is queued"):
        uploads.go_on(What.IMPORT, job)
    deliver()
    assert sent(mails) == {f"import-{job}-1": 1, f"import-{job}-2": 1}
    assert test_importing.now(job).status == ImportStatus.DONE_WITH_ERRORS
    assert test_importing.stored(job) == 1771


@pytest.mark.parametrize("reason", ["hard budget", "timed out after 9.9 s"])
def test_the_outcome_says_how_many_rows_are_in_whatever_cut_the_job_off(
    mails: Path, tmp_path: Path, reason: str
) -> None:
    job = job_for(tmp_path / "a.csv")
    held = {"status": "running", "lease_message": "m1", "rows_done": 339, "rows_failed": 1, "rows_total": 1772}
    with session() as s:
        s.execute(update(ImportJob).where(ImportJob.id == job).values(**held))
    importing.import_lost(Message("q", "import_csv", (job,), {}, {}, message_id="m1"), reason)
    assert effect().body["text"] == "timed out after 340 of 1772: split the file and try again\n"


@pytest.mark.parametrize("lease", ["lapsed", "none"])
def test_an_import_that_a_janitor_ended_is_told_once(mails: Path, tmp_path: Path, lease: str) -> None:
    job = job_for(tmp_path / "a.csv")
    until = func.now() - timedelta(minutes=1) if lease == "lapsed" else None
    held: dict[str, Any] = {"status": "running", "attempts": 5, "lease_until": until, "started_at": None}
    with session() as s:
        s.execute(update(ImportJob).where(ImportJob.id == job).values(**held))
    for _ in range(2):
        janitor.run("finish_stuck_imports", recovery.stuck_imports())
    deliver()
    assert sent(mails) == {f"import-{job}-1": 1}
    assert test_importing.now(job).status == ImportStatus.FAILED


def test_a_batch_is_told_once_when_its_last_file_ended(mails: Path) -> None:
    one, (_, file) = batch("read", "queued")
    batches.extract_batch(one, token="m1")
    assert waiting("mail_summary") == []
    attachments.extract(file, token="m2")
    attachments.extract(file, token="m2")
    deliver()
    assert sent(mails) == {f"batch-{one}-1": 1}
    assert effect().body["text"] == "1 of 2 files read\n"


def test_a_batch_that_failed_is_told_and_goes_on_with_the_files_that_were_not_read(mails: Path) -> None:
    one, _ = batch("read", "queued", status="running")
    with session() as s:
        s.execute(update(UploadBatch).values(lease_message="m1"))
    batches.batch_lost(Message("q", "extract_batch", (one,), {}, {}, message_id="m1"), "hard budget")
    deliver()
    assert effect().body["text"] == "timed out after 1 of 2: split the upload and try again\n"
    uploads.go_on(What.BATCH, one)
    deliver()
    assert sent(mails) == {f"batch-{one}-1": 1, f"batch-{one}-2": 1}
    assert test_batches.told(one) == ("done_with_errors", "1 of 2 files read", 2, 2)


def test_a_mail_that_no_server_took_waits_and_a_janitor_sends_it(
    mails: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_for(tmp_path / "none.csv")
    importing.import_csv(job, token="m1")
    with monkeypatch.context() as away:
        away.setenv("BOOKS_SMTP_PORT", "1")
        settings.cache_clear()
        with pytest.raises(MailNotSent):
            summaries.send(effect().id, token="m2")
    settings.cache_clear()
    assert effect().status == EffectStatus.WAITING
    assert resolve("j1").settled == 0
    with session() as s:
        s.execute(update(OutsideEffect).values(finished_at=func.now() - timedelta(hours=1)))
    assert resolve("j2").settled == 1
    assert sent(mails) == {f"import-{job}-1": 1}


def test_a_file_whose_name_has_a_line_break_is_mailed_all_the_same(mails: Path, tmp_path: Path) -> None:
    job = job_for(tmp_path / "a\nBcc: everybody@example.com\n.csv")
    importing.import_csv(job, token="m1")
    deliver()
    assert sent(mails) == {f"import-{job}-1": 1}
