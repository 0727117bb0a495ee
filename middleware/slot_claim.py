"""Runs a slot's body under one fire's message only: the second line, for a Redis that forgot that it had sent one.

Before the body a slot's message claims (entry, slot) in PostgreSQL (`fleet.storage.slots`); before the broker ends it,
the slot's end is written there. A message of another fire is discarded when the slot has ended, and counted; while the
slot is live it comes back every few seconds, without using up an attempt, until it is discarded, takes the slot over
from a lapsed lease, or expires. While PostgreSQL does not answer, slots' messages come back in the same way and none
runs; an end that could not be written is kept (`fleet.storage.slot_ends`).

Without a database, and for a message without a slot (fired by hand, or sent by a slot's job), nothing is claimed; nor
for an entry that no schedule has with a name of more than 200 signs: an index of PostgreSQL may not hold it, and its
message would come back for ever. Not guaranteed: that one message's body runs once; delivered again, it passes.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dramatiq import Broker, MessageProxy, Middleware

from fleet import metrics, wire
from fleet.broker.ends import current
from fleet.budgets import budget_of
from fleet.logs import get_logger
from middleware.known_entry import LONGEST_NAME, is_known, label
from middleware.outcome import Outcome, outcome, skipped
from middleware.slot_refusal import come_back, refused, said

if TYPE_CHECKING:
    from fleet.storage.slot_ends import SlotEnds
    from fleet.storage.slots import Held, OfSlot

log = get_logger(__name__)

_WITHOUT_BUDGET = timedelta(hours=1)  # the lease of a job outside every lane


class _Running(threading.local):
    """What this thread's message claimed, and how it ended so far."""

    message: MessageProxy | None = None
    held: Held | None = None
    how: Outcome | None = None


class SlotClaim(Middleware):
    """Claims slots, and writes their ends."""

    def __init__(self) -> None:
        self._running = _Running()
        self._made: SlotEnds | None = None
        self._making = threading.Lock()

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        of = _slot_of(broker, message)
        if of is None:
            return
        from fleet.storage import slots

        try:
            answer = slots.claim(of, lease=_lease(broker, message))
        except slots.SlotsUnanswered as error:
            self._ends().away(error)
            raise come_back(broker, message, of, "unanswered") from None
        if isinstance(answer, slots.Refused):
            raise refused(broker, message, of, answer)
        metrics.slot_claim(label(broker, of.entry), answer.how)
        if answer.how == "taken_over":
            log.warning("slot_taken_over", **said(of))
        self._running.message, self._running.held = message, answer
        self._ends().catch_up()

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        self._running.how = outcome(message, exception)

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        self._running.how = skipped(message)

    def before_ack(self, broker: Broker, message: MessageProxy) -> None:
        if self._running.how is not None:
            self._ended(broker, message, self._running.how)

    def before_nack(self, broker: Broker, message: MessageProxy) -> None:
        self._ended(broker, message, "deadline" if self._running.how == "deadline" else "failed")

    def _ended(self, broker: Broker, message: MessageProxy, how: Outcome) -> None:
        """Write what was decided before the broker ends the message: Redis may forget what PostgreSQL knows."""
        held = self._running.held if self._running.message is message else None
        self._running.message = self._running.held = self._running.how = None
        of = held.of if held else _slot_of(broker, message)
        if of is None or how in ("discarded", "waits"):
            return
        from fleet.storage import slots
        from fleet.storage.tables import SlotState

        if held is None:  # it expired, another middleware refused it, or nobody knows its actor
            self._ends().write(of, lambda: slots.end_unclaimed(of, SlotState(how)))
        elif how == "retried":
            lease = _until_retried() + _lease(broker, message)
            self._ends().write(of, lambda: slots.wait(held, lease=lease))
        else:
            self._ends().write(of, lambda: slots.end(held, SlotState(how)))

    def _ends(self) -> SlotEnds:
        """Made at the first slot: a process that runs none loads no SQLAlchemy."""
        with self._making:
            if self._made is None:
                from fleet.storage.slot_ends import SlotEnds

                self._made = SlotEnds()
            return self._made


def _lease(broker: Broker, message: MessageProxy) -> timedelta:
    from fleet.storage.slots import SLACK

    held = budget_of(broker, message)
    return (held.budget.hard if held else _WITHOUT_BUDGET) + SLACK


def _until_retried() -> timedelta:
    """After how long the message that this thread ends comes again."""
    settling = current.settling
    return timedelta(milliseconds=settling.retry[1]) if settling and settling.retry else timedelta(0)


def _slot_of(broker: Broker, message: MessageProxy) -> OfSlot | None:
    """The slot that a message stands for, where there is a database to claim it in."""
    from fleet.app import settings

    if wire.LOST in message.options:  # it ends what its slot's message left, and is no run of the slot
        return None
    entry, slot, nonce = (message.options.get(name) for name in (wire.ENTRY, wire.SLOT, wire.NONCE))
    configured = settings()
    if not isinstance(entry, str) or not isinstance(slot, int) or not configured.database_url:
        return None
    if len(entry) > LONGEST_NAME and not is_known(broker, entry):
        return None
    from fleet.storage.slots import OfSlot

    # A beat from before nonces gives each fire's message an id of its own.
    drawn = nonce if isinstance(nonce, str) else message.message_id
    return OfSlot(configured.namespace, entry, wire.from_ms(slot), drawn, message.message_id)
