"""Continues imports whose worker or message was lost, and ends those that kill every worker; never a live one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet import queue

if TYPE_CHECKING:
    from fleet.janitor import Chore

housekeeping = queue("housekeeping")


def chores() -> Sequence[Chore]:
    """Imports that say running, or wait for a message, though there is nobody and none."""
    from books import recovery

    return recovery.stuck_imports()


@housekeeping.actor  # the lane's budget
def finish_stuck_imports() -> None:
    """Continue imports whose worker or message was lost, or end them readably."""
    from fleet import janitor

    janitor.run("finish_stuck_imports", chores())
