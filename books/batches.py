"""Sends the files of an upload out to be read, and ends the upload when its last file has ended.

The messages of all files go out with one commit, the one that says they are out (`reading`): a batch that is cut off
before has sent nothing. From then on each file's end counts the batch's files anew, in its own transaction and under
the batch's lock, so that of two files that end at once one is the last. Whatever ends a file ends its batch: its
message, `on_lost`, or a janitor.

An upload of more than `FILES_A_BATCH` files is nobody's quarter of an hour: its files go into the backlog, which the
night's chunks read, and no message goes out.

Not guaranteed: by when a batch ends; its files' own bounds say. On failure a batch that was not sent out ends `failed`
and its files wait; `go_on` sends out those that were not read, and none a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from dramatiq import Message
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from books import summaries
from books.leasing import Hold, cut_off, lost, row_of, take
from books.models import Attachment, AttachmentStatus, BatchStatus, UploadBatch
from fleet import deadline, progress
from fleet.actor import FleetActor
from fleet.app import process_broker
from fleet.logs import get_logger
from fleet.storage import session

log = get_logger(__name__)

FILES_A_BATCH = 95  # what a person waits for: two processes (of four) read as many in a quarter of an hour
_UNSYNCED = {"synchronize_session": False}
OPEN = (AttachmentStatus.QUEUED, AttachmentStatus.RUNNING)


def extract_batch(batch_id: int, token: str) -> None:
    """Send out the batch's files that wait; does nothing if another message holds the batch, or it is out or ended.

    Raises `LeaseLost`, `DeadlineExceeded`, and what the database raises.
    """
    hold = take(UploadBatch, batch_id, message=token, claimable=(BatchStatus.QUEUED,), then=batch_moved)
    if hold is None:
        return
    with hold.to_the_end(back_to=BatchStatus.QUEUED, failed=BatchStatus.FAILED), session() as s:
        _send_out(s, hold)


def _send_out(s: Session, hold: Hold[UploadBatch]) -> None:
    batch_id = hold.row.id
    files = _files(s, batch_id)
    total, ended = sum(files.values()), _ended(files)
    progress.publish(ended, total)
    waiting = (Attachment.batch_id == batch_id) & (Attachment.status == AttachmentStatus.QUEUED)
    if total > FILES_A_BATCH:
        s.execute(update(Attachment).where(waiting).values(backlog=True), execution_options=_UNSYNCED)
        hold.finish(BatchStatus.READING, f"{total} files are read by night", s, finished_at=None)
        log.info("batch_sent_out", batch=batch_id, files=total, sent=0)
        return
    actor = cast("FleetActor[Any, Any]", process_broker().get_actor("extract_data_from_attachment"))
    sent = s.scalars(select(Attachment.id).where(waiting, ~Attachment.backlog).order_by(Attachment.id)).all()
    for attachment_id in sent:
        deadline.check()
        actor.send_on_commit(s, attachment_id)
    hold.finish(BatchStatus.READING, None, s, finished_at=None)
    log.info("batch_sent_out", batch=batch_id, files=total, sent=len(sent))


def batch_lost(message: Message[Any], reason: str) -> None:
    """End the batch of a message whose job was cut off."""
    batch_id = row_of(message)
    with session() as s:
        files = _files(s, batch_id)
    said = cut_off(reason, _ended(files), sum(files.values()), "upload")
    lost(UploadBatch, message, said, failed=BatchStatus.FAILED, then=batch_moved)


def batch_moved(s: Session, batch_id: int) -> None:
    """What follows from a batch's own move: its files are counted, and its end, if it is one, is mailed."""
    status = _counted(s, batch_id)
    if status in (BatchStatus.DONE, BatchStatus.DONE_WITH_ERRORS, BatchStatus.FAILED):
        summaries.batch_ended(s, batch_id)


def file_moved(s: Session, attachment_id: int) -> None:
    """What follows from a file's move: its batch, if it has one, is counted anew, and ends with its last file."""
    batch_id = s.scalar(select(Attachment.batch_id).where(Attachment.id == attachment_id))
    if batch_id is None:
        return
    locked = select(UploadBatch.status).where(UploadBatch.id == batch_id).with_for_update()
    before = s.scalars(locked).one()
    if before == BatchStatus.READING and _counted(s, batch_id) != before:
        summaries.batch_ended(s, batch_id)


def _counted(s: Session, batch_id: int) -> str:
    """Count the files of a batch that is locked, end it if it is out and none is open, and return its status."""
    files = _files(s, batch_id)
    total, ended, read = sum(files.values()), _ended(files), files.get(AttachmentStatus.READ, 0)
    counted = {"files_total": total, "files_done": ended}
    ours = update(UploadBatch).where(UploadBatch.id == batch_id).returning(UploadBatch.status)
    if ended == total:
        status = BatchStatus.DONE if read == total else BatchStatus.DONE_WITH_ERRORS
        end = {"status": status, "outcome": f"{read} of {total} files read", "finished_at": func.now()}
        last = ours.where(UploadBatch.status == BatchStatus.READING).values(**counted, **end)
        if s.scalars(last).one_or_none() is not None:
            log.info("batch_ended", batch=batch_id, status=status, files=total, read=read)
            return status
    return s.scalars(ours.values(**counted)).one()


def _files(s: Session, batch_id: int) -> Mapping[str, int]:
    """How many of the batch's files are in which status."""
    by_status = select(Attachment.status, func.count()).where(Attachment.batch_id == batch_id)
    return dict(s.execute(by_status.group_by(Attachment.status)).all())


def _ended(files: Mapping[str, int]) -> int:
    return sum(count for status, count in files.items() if status not in OPEN)
