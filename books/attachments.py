"""Reads receipts: the document's text, then the fields that a model finds in it.

A file that cannot be read ends `unreadable` and says what was found in which file; that is the file's fault and is not
tried again. A model that is busy or answers nonsense is tried again, and after the last time the row is `failed`.

Not guaranteed: that the fields are right, only that they can be booked (see `books.fields`).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from books import clients, documents
from books.batches import file_moved
from books.documents import DocumentUnreadable
from books.leasing import lost, take
from books.models import Attachment, AttachmentStatus
from fleet import progress
from fleet.logs import get_logger
from fleet.storage import session

log = get_logger(__name__)

attachment_lost = partial(lost, Attachment, failed=AttachmentStatus.FAILED, then=file_moved)
"""Ends the file of a message whose job was cut off."""


def extract(attachment_id: int, token: str) -> None:
    """Read one file; does nothing if another message holds it or it was read.

    Raises what the model client raises; `LeaseLost`; `DeadlineExceeded`.
    """
    hold = take(Attachment, attachment_id, message=token, claimable=(AttachmentStatus.QUEUED,), then=file_moved)
    if hold is None:
        return
    with hold.to_the_end(back_to=AttachmentStatus.QUEUED, failed=AttachmentStatus.FAILED):
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
            fields = clients.model().extract_fields(document.text, run=f"attachment:{attachment_id}", step="fields")
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
    log.info("attachment_read", attachment=attachment_id, method=document.method)
