"""Work that waits for CPU, OCR and a model."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dramatiq import Message

from fleet import Budget, queue
from fleet.actor import current_message_id

transaction_postprocess = queue("transaction_postprocess")


@transaction_postprocess.actor  # the lane's budget
def categorize_uncategorized_transactions() -> None:
    """Sort what the night brought: by keyword, then by model; what is beyond this pass's calls goes out singly."""
    from books import categorizing

    rest = categorizing.categorize_uncategorized()
    categorize_transaction.send_many((transaction_id,) for transaction_id in rest)


@transaction_postprocess.actor(
    budget=Budget(
        soft=timedelta(minutes=2),
        hard=timedelta(minutes=3),
        because="one model answer at its p99 of 35 s, asked a second time where it was malformed",
    )
)
def categorize_transaction(transaction_id: int) -> None:
    """Sort one transaction."""
    from books import categorizing

    categorizing.categorize(transaction_id)


def attachment_lost(message: Message[Any], reason: str) -> None:
    from books import attachments

    attachments.attachment_lost(message, reason)


@transaction_postprocess.actor(on_lost=attachment_lost)  # the lane's budget
def extract_data_from_attachment(attachment_id: int) -> None:
    """Read one document."""
    from books import attachments

    attachments.extract(attachment_id, token=current_message_id())


def batch_lost(message: Message[Any], reason: str) -> None:
    from books import batches

    batches.batch_lost(message, reason)


@transaction_postprocess.actor(
    on_lost=batch_lost,
    budget=Budget(
        soft=timedelta(seconds=30),
        hard=timedelta(seconds=60),
        because="reads no file itself: one query and a message a file of the upload",
    ),
)
def extract_batch(batch_id: int) -> None:
    """Send each file of an upload to be read."""
    from books import batches

    batches.extract_batch(batch_id, token=current_message_id())
