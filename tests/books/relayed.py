"""What a process that was killed, or could not reach Redis, left in the outbox is sent, as supervisors do."""

from __future__ import annotations

from sqlalchemy import func, update

from fleet.app import process_broker
from fleet.relay import relay
from fleet.storage import database, session
from fleet.storage.tables import OutboxRow


def relayed() -> None:
    """One pass of the relay, without the wait that a sender's own attempt is given."""
    with session() as s:
        s.execute(update(OutboxRow).values(relay_at=func.now()))
    relay(database(), process_broker())
