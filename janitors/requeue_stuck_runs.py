"""Queues runs, documents and imports again whose worker or message was lost; never takes one from live work."""

from __future__ import annotations

from fleet import queue

housekeeping = queue("housekeeping")


@housekeeping.actor  # the lane's budget
def requeue_stuck_runs() -> None:
    """One pass; logs one line `requeue_stuck_runs processed=… recovered=… failed=… oldest=…`."""
    from books import recovery

    recovery.requeue_stuck_runs()
