"""Drops dead letters that stand longer than they are kept, or are too many, where no lane that runs has done so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet import queue

if TYPE_CHECKING:
    from fleet.janitor import Chore

housekeeping = queue("housekeeping")


def chores() -> Sequence[Chore]:
    """The dead letters of every queue that is known."""
    from fleet.app import process_broker
    from fleet.broker.trimming import OldLetters

    return [OldLetters(process_broker())]


@housekeeping.actor  # the lane's budget
def trim_dead_letters() -> None:
    """Drop dead letters that are too old or too many."""
    from fleet import janitor

    janitor.run("trim_dead_letters", chores())
