"""What becomes of a slot's message that may not run: discarded for good, or sent back to ask again.

A message that comes back is settled as a retry of itself, unchanged: it uses up no attempt, and expires as it would.
Not guaranteed: order among those that wait.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING

from dramatiq import Broker, MessageProxy
from dramatiq.middleware import SkipMessage

from fleet import metrics, wire
from fleet.clock import clock
from fleet.logs import get_logger
from middleware.known_entry import label

if TYPE_CHECKING:
    from fleet.storage.slots import OfSlot, Refused

log = get_logger(__name__)

# Real time. A message that waits asks this often, or sooner where the lease ends sooner.
ASKS_EVERY, _SOONEST = timedelta(seconds=5), timedelta(milliseconds=100)


class SlotNotHad(SkipMessage):
    """Raised when a slot's message may not run: the slot is another fire's, or nobody could say whose it is."""


def refused(broker: Broker, message: MessageProxy, of: OfSlot, answer: Refused) -> SlotNotHad:
    """Discard a message whose slot ended under another fire's, or have it wait for that one's end."""
    if answer.left is not None:
        return come_back(broker, message, of, "waits", answer.left)
    metrics.slot_claim(label(broker, of.entry), "discarded")
    log.warning("slot_message_discarded", **said(of), slot_is=str(answer.state))
    message.options["discarded"] = True  # for the middleware above, whose after_skip hooks run next
    return SlotNotHad(f"{of.entry} of {of.slot.isoformat()} ended as {answer.state} under another fire's message")


def come_back(
    broker: Broker, message: MessageProxy, of: OfSlot, answer: str, left: timedelta = timedelta.max
) -> SlotNotHad:
    """Settle that a message comes again as it is, in `left` or before."""
    real = max(_SOONEST, min(left, ASKS_EVERY)) * random.uniform(1.0, 1.2)  # what waits together asks one by one
    broker.enqueue(message, delay=wire.duration_ms(real * clock.rate))  # type: ignore[arg-type]
    message.options["waits"] = True  # not in what was just encoded; see above
    metrics.slot_claim(label(broker, of.entry), answer)
    log.info("slot_message_waits", **said(of), answer=answer, comes_back_in=str(real))
    return SlotNotHad(f"{of.entry} of {of.slot.isoformat()} cannot be had now: {answer}")


def said(of: OfSlot) -> dict[str, str]:
    """A slot, as log lines name it."""
    return {"entry": of.entry, "slot": of.slot.isoformat(), "nonce": of.nonce}
