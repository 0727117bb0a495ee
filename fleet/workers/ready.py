"""What is fetched and waits in a worker process for one of its threads.

Filled by the pump a whole fetch at a time: one lock and one wake-up, where a `put` a message was a sixth of the pump's
work. Sorted by the actor's priority, then by the order of fetching.
"""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty, PriorityQueue
from typing import NamedTuple

from fleet.broker.pump import Fetched


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

    def take_back(self) -> list[Fetched]:
        """Everything that no thread has taken, in the order of fetching."""
        taken: list[Waiting] = []
        while True:
            try:
                taken.append(self.get_nowait())
            except Empty:
                return [waiting.fetched for waiting in sorted(taken, key=lambda waiting: waiting.order)]
