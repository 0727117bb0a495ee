"""A CSV comes into the books row by row; what cannot be read is named, and nothing comes twice."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import func, select, update

from books import csv_rows, importing
from books.csv_rows import BadRow, CsvRow
from books.models import AccountStatus, BankAccount, ImportJob, ImportRowError, ImportStatus, Transaction
from books.seed_files import BROKEN_ROW, BROKEN_ROWS, GOOD_ROWS, write_broken_csv, write_good_csv
from fleet.errors import DeadlineExceeded
from fleet.storage import session
from tests.books.cut import cut

TODAY = date(2026, 3, 2)


def job_for(path: Path) -> int:
    with session() as s:
        account = BankAccount(
            external_id=f"manual:{uuid4()}", name="Kasse", currency="EUR", customer="c", status=AccountStatus.IDLE
        )
        s.add(account)
        s.flush()
        job = ImportJob(account_id=account.id, path=str(path), status=ImportStatus.QUEUED)
        s.add(job)
        s.flush()
        return job.id


def now(job_id: int) -> ImportJob:
    with session() as s:
        return s.get_one(ImportJob, job_id)


def stored(job_id: int) -> int:
    with session() as s:
        ours = Transaction.external_id.startswith(f"import:{job_id}:", autoescape=True)
        return s.scalar(select(func.count()).select_from(Transaction).where(ours)) or 0


def test_a_file_of_good_rows_is_done(migrated: object, tmp_path: Path) -> None:
    job = job_for(write_good_csv(tmp_path / "good.csv", 1, TODAY))
    importing.import_csv(job, token="m1")
    assert (now(job).status, now(job).outcome) == (ImportStatus.DONE, f"{GOOD_ROWS} rows")
    assert stored(job) == GOOD_ROWS


def test_a_broken_row_341_is_named_and_the_good_rows_are_kept(migrated: object, tmp_path: Path) -> None:
    job = job_for(write_broken_csv(tmp_path / "broken.csv", 1, TODAY))
    importing.import_csv(job, token="m1")
    row = now(job)
    assert row.status == ImportStatus.DONE_WITH_ERRORS
    assert row.outcome == "1771 of 1772 rows, row 341: its amount cannot be read"
    assert (row.rows_total, row.rows_done, row.rows_failed) == (BROKEN_ROWS, BROKEN_ROWS - 1, 1)
    assert stored(job) == BROKEN_ROWS - 1
    with session() as s:
        named = s.execute(select(ImportRowError.row_number, ImportRowError.message).where(ImportRowError.job_id == job))
        assert list(named) == [(BROKEN_ROW, "amount '12,x4' is no number")]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0", "binary content"),
        (b"", "0 bytes"),
        (b"Dear Sir or Madam,\nplease find attached", "2 cells, without a column for date and amount"),
    ],
)
def test_a_file_that_is_no_csv_ends_with_what_was_found(
    migrated: object, tmp_path: Path, content: bytes, found: str
) -> None:
    path = tmp_path / "upload.csv"
    path.write_bytes(content)
    job = job_for(path)
    importing.import_csv(job, token="m1")
    assert now(job).status == ImportStatus.FAILED
    assert found in (now(job).outcome or "")


def test_a_cut_import_says_how_far_it_came_and_goes_on_without_doubling(
    migrated: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_for(write_broken_csv(tmp_path / "broken.csv", 2, TODAY))
    left = iter(range(5))

    def check() -> None:
        if next(left, None) is None:
            raise DeadlineExceeded("the soft budget is used up")

    with monkeypatch.context() as patch:
        patch.setattr("fleet.deadline.check", check)
        cut(timedelta(minutes=1), importing.import_csv, importing.import_lost, job, token="m1")
    assert (now(job).status, now(job).outcome) == (
        ImportStatus.FAILED,
        "timed out after 500 of 1772: split the file and try again",
    )
    assert stored(job) == 499
    with session() as s:  # a person sends it again
        s.execute(update(ImportJob).where(ImportJob.id == job).values(status=ImportStatus.QUEUED))
    importing.import_csv(job, token="m2")
    assert now(job).outcome == "1771 of 1772 rows, row 341: its amount cannot be read"
    assert stored(job) == BROKEN_ROWS - 1


def test_a_job_that_ended_is_not_imported_again(migrated: object, tmp_path: Path) -> None:
    job = job_for(write_good_csv(tmp_path / "good.csv", 3, TODAY))
    importing.import_csv(job, token="m1")
    importing.import_csv(job, token="m2")
    assert now(job).lease_message == "m1"
    assert stored(job) == GOOD_ROWS


def amounts(path: Path, heading: str, *cells: str) -> list[int | str]:
    path.write_text("\n".join([heading, *cells]), encoding="utf-8")
    return [row.amount_cents if isinstance(row, CsvRow) else row.message for row in csv_rows.rows(path)]


def test_german_and_english_numbers_are_told_apart_by_the_delimiter(tmp_path: Path) -> None:
    german = ["02.03.2026;1.234,56", "02.03.2026;1.234", "02.03.2026;-0,05", "02.03.2026;1,234", "02.03.2026;12,3 €"]
    assert amounts(tmp_path / "de.csv", "Datum;Betrag", *german) == [
        123456,
        123400,
        -5,
        "amount '1,234' is no number",
        1230,
    ]
    english = ['2026-03-02,"1,234.56"', '2026-03-02,"1,234"', "2026-03-02,-0.05", "2026-03-02,1.234", "2026-03-02,"]
    assert amounts(tmp_path / "en.csv", "Date,Amount", *english) == [
        123456,
        123400,
        -5,
        "amount '1.234' is no number",
        "amount '' is no number",
    ]


def test_a_row_with_a_day_that_does_not_exist_or_cells_missing_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("Date;Amount\n31.02.2026;1,00\n02.03.2026\n\n02.03.2026;1,00\n", encoding="utf-8")
    first, second, third = csv_rows.rows(path)
    assert isinstance(first, BadRow)
    assert "31.02.2026" in first.message
    assert isinstance(second, BadRow)
    assert second.number == 2
    assert isinstance(third, CsvRow)
    assert third.number == 3
