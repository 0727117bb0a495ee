"""Says once that Redis, or one queue in it, cannot be used, and once that it can again; not a line a message.

What a broken queue would not have written waits here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import redis

from fleet.broker.ends import End
from fleet.logs import get_logger

log = get_logger(__name__)


class Outages:
    """What a pump cannot use at the moment: all of Redis, or the queues that are `broken`."""

    def __init__(self) -> None:
        self._lost = False
        self.broken: frozenset[str] = frozenset()

    def lost(self, worker: str, error: redis.RedisError) -> None:
        """Redis did not answer."""
        if not self._lost:
            log.error("redis_lost", worker=worker, error=str(error))
        self._lost = True

    def back(self, worker: str) -> None:
        """Redis answered."""
        if self._lost:
            log.warning("redis_back", worker=worker)
        self._lost = False

    def looked_at(self, queues: Collection[str], found: Mapping[str, str], *, again_in: float) -> None:
        """These queues were looked at, with these errors; whoever is not looked at stays as it was."""
        for queue, error in found.items():
            if queue not in self.broken:
                log.error("queue_broken", queue=queue, error=error, looked_at_again_in=f"{again_in:g}s")
        for queue in self.broken.intersection(queues) - found.keys():
            log.warning("queue_mended", queue=queue)
        self.broken = self.broken.difference(queues).union(found)


class Refused:
    """Ends that a broken queue refused, until they are tried again; of `queues` nothing is to be fetched meanwhile.

    They take up no room of their process, so it would otherwise hold ever more of them.
    """

    def __init__(self) -> None:
        self._ends: list[End] = []
        self.queues: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self._ends)

    def turned(self, refused: Collection[End]) -> None:
        """A turn was answered, and had these refused."""
        self._ends.extend(refused)
        self.queues = frozenset(end.queue for end in self._ends)

    def take(self) -> list[End]:
        """All of them, for another try; their queues are told from what becomes of it."""
        taken, self._ends = self._ends, []
        return taken
