"""Receipts that customers upload, a batch at a time, and what was read in them."""

from __future__ import annotations

from datetime import date, datetime
from enum import StrEnum

from sqlalchemy import ForeignKey, Index, false, func, text
from sqlalchemy.orm import Mapped, mapped_column

from books.models.base import Base, shown_as_runs
from fleet.storage.leases import Lease


class BatchStatus(StrEnum):
    QUEUED = "queued"  # waits for its message
    RUNNING = "running"  # a message sends its files out and holds its lease
    READING = "reading"  # its files are out; each one's end counts, and the last one's ends it
    DONE = "done"  # every file was read
    DONE_WITH_ERRORS = "done_with_errors"  # every file has ended, and some were not read; `outcome` says how many
    FAILED = "failed"  # its files were not sent out (a deadline, or given up); `outcome` says why


class UploadBatch(Lease, Base):
    """Documents that came in one upload; `files_done` of its `files_total` files have ended, whether read or not.

    `email` is whoever uploaded it, and is told of its end; None: nobody is. `queued_at` is real time.
    """

    __tablename__ = "upload_batches"
    __table_args__ = shown_as_runs("upload_batches", "coalesce(finished_at, started_at, queued_at)")

    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(index=True, default=BatchStatus.QUEUED, server_default=BatchStatus.QUEUED)
    customer: Mapped[str]
    email: Mapped[str | None]
    uploaded_at: Mapped[datetime] = mapped_column(server_default=func.now())
    queued_at: Mapped[datetime] = mapped_column(server_default=func.now())
    files_total: Mapped[int | None]
    files_done: Mapped[int] = mapped_column(default=0, server_default="0")


class AttachmentStatus(StrEnum):
    QUEUED = "queued"  # waits for its message, or for the night's chunks
    RUNNING = "running"  # a message reads it and holds its lease
    READ = "read"  # read; the fields hold what was found
    UNREADABLE = "unreadable"  # the file itself cannot be read; `outcome` says what was found, a person decides
    FAILED = "failed"  # reading did not end (deadline, model, or given up); `outcome` says where


class Attachment(Lease, Base):
    """One file. `queued_at` is when it last began to wait, in real time.

    One of the `backlog` has no message of its own: nobody waits for it, and the night's chunks read it.
    """

    __tablename__ = "attachments"
    __table_args__ = (
        Index("ix_attachments_backlog", "customer", "id", postgresql_where=text("backlog AND status = 'queued'")),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    batch_id: Mapped[int | None] = mapped_column(ForeignKey("upload_batches.id"), index=True)
    customer: Mapped[str]
    path: Mapped[str]
    backlog: Mapped[bool] = mapped_column(default=False, server_default=false())
    queued_at: Mapped[datetime] = mapped_column(server_default=func.now())
    method: Mapped[str | None]
    text_length: Mapped[int | None]
    merchant: Mapped[str | None]
    issued_on: Mapped[date | None]
    gross_cents: Mapped[int | None]
    vat_cents: Mapped[int | None]
    currency: Mapped[str | None]
