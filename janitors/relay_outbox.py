"""Sends what is left in the outbox, as supervisors do within seconds, and says what still stands there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet import queue

if TYPE_CHECKING:
    from fleet.janitor import Chore

housekeeping = queue("housekeeping")


def chores() -> Sequence[Chore]:
    """Messages that no relay has sent in ten seconds, and those that could not be sent."""
    from fleet.app import process_broker
    from fleet.left_behind import LeftBehind
    from fleet.storage import database

    return [LeftBehind(database(), process_broker())]


@housekeeping.actor  # the lane's budget
def relay_outbox() -> None:
    """Send what is left in the outbox, and try again what could not be sent."""
    from fleet import janitor

    janitor.run("relay_outbox", chores())
