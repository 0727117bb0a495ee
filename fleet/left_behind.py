"""What a janitor looks after in the outbox: messages that no relay has sent in time, and those that could not be sent.

Supervisors relay within seconds, so that a pass which finds something to send says that none of them does. What could
not be sent is tried again, without its pause, and what is refused once more counts as failed.

Not guaranteed: that what is counted is what is sent; a supervisor may be at it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Engine, func, select, update

from fleet import deadline, metrics
from fleet.broker import FleetBroker
from fleet.errors import FleetError
from fleet.janitor import Measured, Stuck
from fleet.relay import relay
from fleet.standing import overdue, standing, waits
from fleet.storage.tables import OutboxRow


class MessagesRefused(FleetError):
    """Raised when messages of the outbox were tried again and could not be sent again."""


class LeftBehind:
    """A chore: such messages, by queue, actor and the reason why they were not sent."""

    def __init__(self, engine: Engine, broker: FleetBroker) -> None:
        self._engine, self._broker = engine, broker

    def measure(self) -> Measured:
        """Raises what the database raises."""
        stands = standing(self._engine, self._broker)
        with deadline.shielded():  # a metric that is half registered is refused ever after
            metrics.outbox(stands.waiting, stands.refused, stands.oldest.total_seconds())
        stuck, scanned = stands.overdue + stands.refused, stands.waiting + stands.accepted
        return Measured(scanned, stuck, scanned - stuck, stands.oldest if stuck else None)

    def find(self) -> Iterator[Stuck]:
        """One for messages that are alike: there may be thousands for one reason."""
        alike = (OutboxRow.queue, OutboxRow.actor, OutboxRow.refused)
        age: ColumnElement[timedelta] = func.clock_timestamp() - func.min(OutboxRow.written_at)
        stuck = overdue() | OutboxRow.refused.is_not(None)
        with self._engine.connect() as connection:
            asked = select(*alike, age, func.count()).where(waits(self._broker), stuck).group_by(*alike)
            found = connection.execute(asked.order_by(*alike)).all()
        for queue, actor, refused, oldest, count in found:
            subject = f"{count:,} to {actor} on {queue}" + (f": {refused}" if refused else "")
            yield Stuck((queue, actor, refused), subject, oldest, "tried again" if refused else "sent", count)

    def mend(self, stuck: Stuck) -> int:
        """Raises `MessagesRefused`, `NotAccepted`, and what the database raises."""
        queue, actor, refused = stuck.key
        these: Any = (OutboxRow.queue == queue) & (OutboxRow.actor == actor)
        these &= OutboxRow.refused.is_(None) if refused is None else OutboxRow.refused == refused
        with self._engine.begin() as connection:
            now = {"relay_at": func.clock_timestamp()}
            connection.execute(update(OutboxRow).where(waits(self._broker), these).values(now))
        relayed = relay(self._engine, self._broker, only=these)
        if relayed.refused:
            raise MessagesRefused(f"{relayed.refused:,} messages could not be sent; `fleet outbox list --refused`.")
        return relayed.sent
