"""Reads receipts: the document's text, then the fields that a model finds in it.

A file that cannot be read ends `unreadable` and says what was found in which file; that is the file's fault and is not
tried again. A model that is busy or answers nonsense is tried again, and after the last time the row is `failed`.

A document that a person just uploaded has a message of its own. One of the backlog (a large upload, a takeover of older
books) has none: the night's chunks read it, round-robin by customer (`books.chunks`).

Not guaranteed: that the fields are right, only that they can be booked (see `books.fields`).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from dramatiq import Message
from sqlalchemy import literal, select

from books import clients, documents
from books.batches import file_moved
from books.chunks import MOST_TRIES, Backlog, Chunk, passes
from books.documents import DocumentUnreadable
from books.leasing import Hold, end_lost, lost, take
from books.models import Attachment, AttachmentStatus
from fleet import progress
from fleet.elastic import Did
from fleet.logs import get_logger
from fleet.storage import session

log = get_logger(__name__)

attachment_lost = partial(lost, Attachment, failed=AttachmentStatus.FAILED, then=file_moved)
"""Ends the file of a message whose job was cut off."""

DOCUMENTS = Backlog(
    "extract_backlog",
    Attachment,
    Attachment.backlog & (Attachment.status == literal(AttachmentStatus.QUEUED, literal_execute=True)),
    then=file_moved,
)


def extract(attachment_id: int, token: str) -> None:
    """Read one file; does nothing if another message holds it or it was read.

    Raises what the model client raises; `LeaseLost`; `DeadlineExceeded`.
    """
    hold = take(Attachment, attachment_id, message=token, claimable=(AttachmentStatus.QUEUED,), then=file_moved)
    if hold is None:
        return
    with hold.to_the_end(back_to=AttachmentStatus.QUEUED, failed=AttachmentStatus.FAILED):
        _read(hold)


def extract_backlog(size: int, token: str) -> Did:
    """Read up to `size` documents of the backlog, and first one that this very message was reading when its worker
    died.

    Says whether another chunk has anything to do now, and how many rows this one did. Raises what the database raises;
    `DeadlineExceeded`.
    """
    return Chunk(DOCUMENTS.name, size).do(lambda: DOCUMENTS.next_row(token), _read_of_backlog)


def backlog() -> int:
    """How many documents of the backlog wait."""
    return DOCUMENTS.count()


def backlog_lost(message: Message[Any], reason: str) -> None:
    """End the document that a chunk was reading when it was cut off; the others wait in the backlog."""
    reading = (Attachment.lease_message == message.message_id) & (Attachment.status == AttachmentStatus.RUNNING)
    with session() as s:
        for row_id in s.scalars(select(Attachment.id).where(reading)).all():
            if end_lost(s, Attachment, row_id, message, reason, failed=AttachmentStatus.FAILED):
                file_moved(s, row_id)


def _read_of_backlog(hold: Hold[Attachment]) -> None:
    back, failed = AttachmentStatus.QUEUED, AttachmentStatus.FAILED
    with hold.tried(back_to=back, failed=failed, most=MOST_TRIES, passes=passes):
        with clients.limited(clients.MODEL):
            pass  # without a place now, seconds of reading would be for nothing
        _read(hold)


def _read(hold: Hold[Attachment]) -> None:
    progress.stage("while its text was read")
    try:
        document = documents.read(Path(hold.row.path))
    except DocumentUnreadable as error:
        hold.finish(AttachmentStatus.UNREADABLE, f"{error}")
        return
    if not document.text.strip():
        found = f"{Path(hold.row.path).name}: no text found ({document.method})"
        hold.finish(AttachmentStatus.UNREADABLE, f"{found}; upload a sharper picture")
        return
    progress.stage(f"after its text was read ({document.method}), while the model looked for the fields")
    with session() as s:
        hold.renew(s)
    with clients.limited(clients.MODEL):
        fields = clients.model().extract_fields(document.text, run=f"attachment:{hold.row.id}", step="fields")
    hold.finish(
        AttachmentStatus.READ,
        f"read by {document.method}, {len(document.text)} characters",
        method=document.method,
        text_length=len(document.text),
        merchant=fields.merchant,
        issued_on=fields.date,
        gross_cents=fields.gross_cents,
        vat_cents=fields.vat_cents,
        currency=fields.currency,
    )
    log.info("attachment_read", attachment=hold.row.id, method=document.method)
