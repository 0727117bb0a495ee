"""What a person just uploaded, and looks at again in a minute: work of the lane that is fetched before its backlogs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dramatiq import Message

from fleet import Budget, queue
from fleet.actor import current_message_id

uploads = queue("uploads")


def attachment_lost(message: Message[Any], reason: str) -> None:
    from books import attachments

    attachments.attachment_lost(message, reason)


@uploads.actor(on_lost=attachment_lost)  # the lane's budget
def extract_data_from_attachment(attachment_id: int) -> None:
    """Read one document."""
    from books import attachments

    attachments.extract(attachment_id, token=current_message_id())


def batch_lost(message: Message[Any], reason: str) -> None:
    from books import batches

    batches.batch_lost(message, reason)


@uploads.actor(
    on_lost=batch_lost,
    budget=Budget(
        soft=timedelta(seconds=30),
        hard=timedelta(seconds=60),
        because="reads no file itself: one query and a message a file of the upload",
    ),
)
def extract_batch(batch_id: int) -> None:
    """Send each file of an upload to be read, or leave a large one to the night."""
    from books import batches

    batches.extract_batch(batch_id, token=current_message_id())
