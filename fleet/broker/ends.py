"""The ends of a message, and how the thread that works on one settles which it will be.

A message ends as exactly one of:

    done      its work ended
    retry     its work failed and comes again after a delay, as a new body under the same id
    returned  it goes back to the front of its queue unchanged: it was only prefetched, or how it ended is unknown
    dropped   a middleware refused it (expired, skipped): counted, and no dead letter
    dead      its work failed for good: a dead letter with its reason

A retry is not sent by the hook that asks for it: `FleetBroker.enqueue` notes it here when the message is the one this
thread works on, and the script that ends the message stores it. So a retry that cannot be stored leaves the message
held. In the same way the chunk of a chain goes on (`fleet.elastic`): its message ends and is there again in one step.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Literal

from dramatiq.message import Message

Kind = Literal["done", "retry", "back", "drop", "dead"]


@dataclass(slots=True)
class End:
    """An end that is to be written: `first` and `second` are the script's two values by kind.

    `worker` is the id of the worker process that fetched the message: a process that was reaped meanwhile goes on under
    another, and what it fetched before is no longer its own to end. `delivery` tells this delivery to that worker from
    another one of the same message.
    """

    worker: str
    queue: str
    id: str
    delivery: int
    kind: Kind
    first: bytes = b""
    second: bytes = b""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A message as it lies in Redis; `worker` is the id it was fetched under."""

    worker: str
    queue: str
    id: str  # bytes that are no UTF-8 as surrogates
    delivery: int  # grows with each fetch of a worker id
    body: bytes

    def end(self, kind: Kind, first: bytes = b"", second: bytes = b"") -> End:
        """An end of this delivery."""
        return End(self.worker, self.queue, self.id, self.delivery, kind, first, second)


@dataclass(slots=True)
class Settling:
    """What is known so far of the end of the message that a thread works on.

    `goes_on` is the body that a job which ended well wants to come again as, at once: its chain's next chunk.
    """

    message_id: str
    queue: str
    in_body: bool = False
    retry: tuple[bytes, int] | None = None
    goes_on: bytes | None = None
    broken_hook: BaseException | None = None

    def retried_by(self, message: Message[Any]) -> bool:
        """Whether the sending of this message is the retry of the one that is settled.

        What a body sends is sent, also itself; so is a message for another queue, and every one after the first.
        """
        same = message.message_id == self.message_id and message.queue_name == self.queue
        return same and not self.in_body and self.retry is None


class _Current(threading.local):
    settling: Settling | None = None


current = _Current()
"""What the calling thread settles now; None while it works on no message."""
