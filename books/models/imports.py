"""CSV files that customers hand in, and the rows in them that could not be read."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import ForeignKey, UniqueConstraint, func
from sqlalchemy.orm import Mapped, mapped_column

from books.models.base import Base, shown_as_runs
from fleet.storage.leases import Lease


class ImportStatus(StrEnum):
    QUEUED = "queued"  # waits for its message
    RUNNING = "running"  # a message imports it and holds its lease
    DONE = "done"  # every row is in the books
    DONE_WITH_ERRORS = "done_with_errors"  # the good rows are in the books; `import_row_errors` names the others
    FAILED = "failed"  # the file as a whole could not be imported, or not to its end; `outcome` says why


class ImportJob(Lease, Base):
    """One file. Its good rows become transactions of a manual account, with ids made of job and row.

    `rows_done` + `rows_failed` rows from the head of the file are committed. `email` is whoever handed it in, and is
    told of its end; None: nobody is. `queued_at` is real time.
    """

    __tablename__ = "import_jobs"
    __table_args__ = shown_as_runs("import_jobs", "coalesce(finished_at, started_at, queued_at)")

    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("bank_accounts.id"))
    path: Mapped[str]
    email: Mapped[str | None]
    queued_at: Mapped[datetime] = mapped_column(server_default=func.now())
    rows_total: Mapped[int | None]
    rows_done: Mapped[int] = mapped_column(default=0, server_default="0")
    rows_failed: Mapped[int] = mapped_column(default=0, server_default="0")


class ImportRowError(Base):
    """A row that could not be read. `row_number` counts the rows below the header, from 1."""

    __tablename__ = "import_row_errors"
    __table_args__ = (UniqueConstraint("job_id", "row_number"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("import_jobs.id"))
    row_number: Mapped[int]
    message: Mapped[str]
