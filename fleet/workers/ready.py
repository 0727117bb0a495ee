"""What is fetched and waits in a worker process for one of its threads.

Filled by the pump a whole fetch at a time: one lock and one wake-up, where a `put` a message was a sixth of the pump's
work. Sorted by the actor's priority, then by the order of fetching.
"""

from __future__ import annotations

from collections.abc import Sequence
from queue import PriorityQueue
from typing import NamedTuple

from fleet import wire
from fleet.broker.ends import Fetched

_READ = 512  # bytes from a body's end, which tells when it was due


class Waiting(NamedTuple):
    """A fetched message's place; `order` is unique, so that no comparison reaches the message."""

    priority: int
    order: int
    fetched: Fetched


class Ready(PriorityQueue[Waiting]):
    """A priority queue that takes many at once and gives back what nobody has taken."""

    def __init__(self) -> None:
        super().__init__()
        self._order = 0

    def put_all(self, fetched: Sequence[Fetched], priorities: Sequence[int]) -> None:
        """Add messages in their order, and wake as many threads as there are messages."""
        with self.mutex:
            for one, priority in zip(fetched, priorities, strict=True):
                self._order += 1
                self._put(Waiting(priority, self._order, one))
            self.not_empty.notify(len(fetched))

    def oldest_due(self) -> dict[str, int]:
        """Since when (real milliseconds) the first fetched message of each queue that nobody took is due."""
        with self.mutex:
            in_order = sorted(self.queue, key=lambda waiting: waiting.order)
        first: dict[str, bytes] = {}
        for waiting in in_order:
            first.setdefault(waiting.fetched.queue, waiting.fetched.body)
        due = {queue: wire.due_at(body[-_READ:]) for queue, body in first.items()}
        return {queue: wire.to_ms(instant) for queue, instant in due.items() if instant is not None}

    def take_back(self, most: int | None = None) -> list[Fetched]:
        """What no thread has taken, in the order of fetching: all of it, or the last ones."""
        with self.mutex:
            in_order = sorted(self.queue, key=lambda waiting: waiting.order)
            kept = 0 if most is None else max(0, len(in_order) - most)
            self.queue[:] = sorted(in_order[:kept])  # sorted, a list is a heap
        return [waiting.fetched for waiting in in_order[kept:]]
