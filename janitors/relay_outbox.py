"""Sends what is left in the outbox, as supervisors do within seconds, and says what still stands there."""

from __future__ import annotations

from fleet import queue

housekeeping = queue("housekeeping")


@housekeeping.actor  # the lane's budget
def relay_outbox() -> None:
    """One pass; logs one line `relay_outbox verdict=… scanned=… stuck=… recovered=… failed=… oldest=…`."""
    from fleet import relay
    from fleet.app import process_broker
    from fleet.storage import database

    relay.measured_pass(database(), process_broker())
