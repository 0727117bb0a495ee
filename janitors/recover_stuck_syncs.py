"""Frees accounts whose sync was lost (its lease lapsed) and sends their sync again; never takes one from live work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet import queue

if TYPE_CHECKING:
    from fleet.janitor import Chore

housekeeping = queue("housekeeping")


def chores() -> Sequence[Chore]:
    """Accounts that say running though nobody holds them."""
    from books import recovery

    return recovery.stuck_syncs()


@housekeeping.actor  # the lane's budget
def recover_stuck_syncs() -> None:
    """Free accounts whose sync was lost, and sync them again."""
    from fleet import janitor

    janitor.run("recover_stuck_syncs", chores())
