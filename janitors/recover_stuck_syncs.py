"""Frees accounts whose sync was lost (its lease lapsed) and sends their sync again; never takes one from live work."""

from __future__ import annotations

from fleet import queue

housekeeping = queue("housekeeping")


@housekeeping.actor  # the lane's budget
def recover_stuck_syncs() -> None:
    """One pass; logs one line `recover_stuck_syncs processed=… recovered=… failed=… oldest=…`."""
    from books import recovery

    recovery.recover_stuck_syncs()
