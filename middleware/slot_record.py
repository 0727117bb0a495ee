"""Records in PostgreSQL which message ran for a slot, and how it ended: the judge of "nothing fires twice".

Only the message of a slot itself is recorded, not what it sends on. Without a database nothing is recorded. A record
that cannot be written is logged and never stops the job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dramatiq import Broker, MessageProxy, Middleware

from fleet import wire
from fleet.clock import clock
from fleet.logs import get_logger
from middleware.outcome import Outcome, outcome, skipped

log = get_logger(__name__)


class SlotRecord(Middleware):
    """One row a (entry, slot, message)."""

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        key = _slot_of(message)
        if key is None:
            return
        from sqlalchemy import func
        from sqlalchemy.dialects.postgresql import insert

        from fleet.storage import session
        from fleet.storage.tables import SlotRun

        row = {"entry": key[0], "slot": wire.from_ms(key[1]), "message_id": message.message_id}
        started = insert(SlotRun).values(**row, started_night=clock.now())
        again = {"starts": SlotRun.starts + 1, "started_at": func.now(), "ended_at": None, "outcome": None}
        with _never_stopping("start", message), session() as s:
            s.execute(started.on_conflict_do_update(index_elements=list(row), set_=again))

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        self._ended(message, outcome(message, exception))

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        self._ended(message, skipped(message))

    def _ended(self, message: MessageProxy, how: Outcome) -> None:
        key = _slot_of(message)
        if key is None:
            return
        from sqlalchemy import func, update

        from fleet.storage import session
        from fleet.storage.tables import SlotRun

        with _never_stopping("end", message), session() as s:
            s.execute(
                update(SlotRun)
                .where(SlotRun.entry == key[0], SlotRun.slot == wire.from_ms(key[1]))
                .where(SlotRun.message_id == message.message_id)
                .values(ended_at=func.now(), outcome=how)
            )


@contextmanager
def _never_stopping(what: str, message: MessageProxy) -> Iterator[None]:
    """A record is not worth a job: what PostgreSQL refuses is said and left."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        log.error("slot_not_recorded", what=what, entry=message.options.get(wire.ENTRY), error=repr(error)[:300])


def _slot_of(message: MessageProxy) -> tuple[str, int] | None:
    """Entry and slot of a message that stands for a slot, where there is a database to record it in."""
    from fleet.app import settings

    if wire.LOST in message.options:  # it ends what its slot's message left, and is no run of the slot
        return None
    entry, slot = message.options.get(wire.ENTRY), message.options.get(wire.SLOT)
    if not isinstance(entry, str) or not isinstance(slot, int) or not settings().database_url:
        return None
    return entry, slot
