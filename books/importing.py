"""Takes a customer's CSV into the books: the good rows become transactions of a manual account, the bad ones are named.

Progress is committed every hundred rows, rows and counters and lease together; a run that comes again goes on behind
them. A row's external id is made of job and number, so no row is in the books twice.

Not guaranteed: that the same file handed in twice is noticed; those are two jobs. On failure: a file that is no CSV
ends `failed` with what was found; a deadline leaves "timed out after 340 of 1772: split the file and try again", and
those 340 stay. However it ends, whoever handed it in gets one mail (`books.summaries`).

The mail and `import_row_errors` quote what was found. The row's outcome, which the engine's pages show (`fleet_runs`),
has counts, numbers of rows and names of columns, and nothing that stands in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from dramatiq import Message
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from books import csv_rows
from books.csv_rows import BadRow, CsvRow, NotCsv
from books.leasing import Hold, cut_off, lost, row_of, take
from books.models import ImportJob, ImportRowError, ImportStatus, Transaction
from books.summaries import import_moved
from fleet import deadline, progress
from fleet.logs import get_logger
from fleet.storage import session

log = get_logger(__name__)

ROWS_A_COMMIT = 100
_BAD_ROWS_SHOWN = 3
_OF_A_COLUMN = re.compile(r"(date|amount|currency) ['\"]")  # how the message of a `BadRow` begins


def import_csv(job_id: int, token: str) -> None:
    """Import one job's file to its end; does nothing if another message holds the job or it has ended.

    Raises `LeaseLost`, `DeadlineExceeded`, and what the database raises.
    """
    hold = take(ImportJob, job_id, message=token, claimable=(ImportStatus.QUEUED,), then=import_moved)
    if hold is None:
        return
    job = hold.row
    with hold.to_the_end(back_to=ImportStatus.QUEUED, failed=ImportStatus.FAILED):
        try:
            job.rows_total = csv_rows.count(Path(job.path))
            _import_rows(hold)
        except NotCsv as error:
            hold.finish(ImportStatus.FAILED, error.kind, then=partial(import_moved, told=f"{error}"))
        else:
            with session() as s:
                status, outcome, told = _verdict(s, job)
                hold.finish(status, outcome, s, then=partial(import_moved, told=told))
    log.info("csv_imported", job=job_id, rows=job.rows_total, done=job.rows_done, failed=job.rows_failed)


def import_lost(message: Message[Any], reason: str) -> None:
    """End the import of a message whose job was cut off, and say how many rows are in."""
    job_id = row_of(message)
    reached = select(ImportJob.rows_done + ImportJob.rows_failed, ImportJob.rows_total).where(ImportJob.id == job_id)
    with session() as s:
        done, total = s.execute(reached).one()
    said = cut_off(reason, done, total, "file")
    lost(ImportJob, message, said, failed=ImportStatus.FAILED, then=import_moved)


def _import_rows(hold: Hold[ImportJob]) -> None:
    job = hold.row
    rows = islice(csv_rows.rows(Path(job.path)), job.rows_done + job.rows_failed, None)
    progress.publish(job.rows_done + job.rows_failed, job.rows_total)
    while chunk := list(islice(rows, ROWS_A_COMMIT)):
        deadline.check()
        good = [row for row in chunk if isinstance(row, CsvRow)]
        bad = [row for row in chunk if isinstance(row, BadRow)]
        done, failed = job.rows_done + len(good), job.rows_failed + len(bad)
        with session() as s:
            hold.renew(s)
            _store(s, job, good, hold.message)
            _note(s, job.id, bad)
            values = {"rows_done": done, "rows_failed": failed, "rows_total": job.rows_total}
            s.execute(update(ImportJob).where(ImportJob.id == job.id).values(**values))
        job.rows_done, job.rows_failed = done, failed
        progress.publish(done + failed, job.rows_total)


def _store(s: Session, job: ImportJob, rows: Iterable[CsvRow], message: str) -> None:
    values = [
        {
            "account_id": job.account_id,
            "external_id": f"import:{job.id}:{row.number}",
            "booked": True,
            "booking_date": row.booking_date,
            "amount_cents": row.amount_cents,
            "currency": row.currency,
            "counterparty": row.counterparty,
            "remittance": row.remittance,
            "stored_by": message,
        }
        for row in rows
    ]
    if values:
        unique = [Transaction.account_id, Transaction.external_id]
        s.execute(insert(Transaction).values(values).on_conflict_do_nothing(index_elements=unique))


def _note(s: Session, job_id: int, rows: Iterable[BadRow]) -> None:
    values = [{"job_id": job_id, "row_number": row.number, "message": row.message} for row in rows]
    if values:
        unique = [ImportRowError.job_id, ImportRowError.row_number]
        s.execute(insert(ImportRowError).values(values).on_conflict_do_nothing(index_elements=unique))


def _verdict(s: Session, job: ImportJob) -> tuple[ImportStatus, str, str]:
    """The status, the outcome as anybody may read it, and as whoever handed the file in is told it."""
    total = job.rows_done + job.rows_failed
    if not job.rows_failed:
        return ImportStatus.DONE, f"{total} rows", f"{total} rows"
    found = s.execute(
        select(ImportRowError.row_number, ImportRowError.message)
        .where(ImportRowError.job_id == job.id)
        .order_by(ImportRowError.row_number)
        .limit(_BAD_ROWS_SHOWN)
    )
    first = [(number, message) for number, message in found]
    more = job.rows_failed - _BAD_ROWS_SHOWN
    rest = f"; and {more} more" if more > 0 else ""
    outcome = "; ".join(f"row {number}: {_kind(message)}" for number, message in first)
    told = "; ".join(f"row {number}: {message}" for number, message in first)
    in_books = f"{job.rows_done} of {total} rows"
    return ImportStatus.DONE_WITH_ERRORS, f"{in_books}, {outcome}{rest}", f"{in_books}, {told}{rest}"


def _kind(message: str) -> str:
    """What a bad row's message says, without the cell that it quotes."""
    column = _OF_A_COLUMN.match(message)
    return f"its {column[1]} cannot be read" if column is not None else "it cannot be read"
