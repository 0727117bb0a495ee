"""Work that waits for CPU, OCR and a model, and for no person: backlogs, drained in chunks."""

from __future__ import annotations

from typing import Any

from dramatiq import Message

from fleet import elastic, queue
from fleet.actor import current_message_id

transaction_postprocess = queue("transaction_postprocess")


def categorizing_lost(message: Message[Any], reason: str) -> None:
    from books import categorizing

    categorizing.categorizing_lost(message, reason)


@transaction_postprocess.actor(on_lost=categorizing_lost)  # the lane's budget
def categorize_uncategorized_transactions() -> None:
    """Sort what the night brought: by keyword, then by model."""
    from books import categorizing

    token = current_message_id()
    elastic.chunk(
        lambda size: categorizing.categorize_uncategorized(size, token=token),
        give_back=lambda: categorizing.give_back(token),
    )


def backlog_lost(message: Message[Any], reason: str) -> None:
    from books import attachments

    attachments.backlog_lost(message, reason)


@transaction_postprocess.actor(on_lost=backlog_lost)  # the lane's budget
def extract_backlog() -> None:
    """Read the documents that nobody waits for: large uploads, takeovers of older books."""
    from books import attachments

    elastic.chunk(lambda size: attachments.extract_backlog(size, token=current_message_id()))
