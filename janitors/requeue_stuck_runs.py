"""Queues runs and documents again whose worker was lost, and finds out what became of what was leaving the house."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet import queue

if TYPE_CHECKING:
    from fleet.janitor import Chore

housekeeping = queue("housekeeping")


def chores() -> Sequence[Chore]:
    """Agent runs, attachments and outside effects that say running, or wait, though there is nobody and no message."""
    from books import recovery

    return recovery.stuck_runs()


@housekeeping.actor  # the lane's budget
def requeue_stuck_runs() -> None:
    """Queue agent runs and documents again whose worker or message was lost; ask about what was leaving the house."""
    from fleet import janitor

    janitor.run("requeue_stuck_runs", chores())
