"""Work that waits for a model while a person watches a spinner."""

from __future__ import annotations

from typing import Any

from dramatiq import Message

from fleet import queue
from fleet.actor import current_message_id

agent_realtime = queue("agent_realtime")


def submission_lost(message: Message[Any], reason: str) -> None:
    from books import submitting

    submitting.submission_lost(message, reason)


@agent_realtime.actor(on_lost=submission_lost, safe_args=("run_id",))  # the lane's budget
def submit_approved_run(run_id: int) -> None:
    """Hand in what a person approved, once."""
    from books import submitting

    submitting.submit_approved(run_id, token=current_message_id())
