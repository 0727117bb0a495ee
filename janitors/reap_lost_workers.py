"""Returns what workers held that are gone and that no supervisor has reaped; never a worker whose beat moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet import queue

if TYPE_CHECKING:
    from fleet.janitor import Chore

housekeeping = queue("housekeeping")


def chores() -> Sequence[Chore]:
    """Every worker on record, in all queues."""
    from fleet.app import process_broker, settings
    from fleet.workers.silent import SilentWorkers

    broker = process_broker()
    return [SilentWorkers(broker, sorted(broker.lanes), lost_after=settings().lost_after)]


@housekeeping.actor  # the lane's budget
def reap_lost_workers() -> None:
    """Return what lost workers held that no supervisor has reaped."""
    from fleet import janitor

    janitor.run("reap_lost_workers", chores())
