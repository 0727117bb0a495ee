"""What a janitor says of the dead letters: how many there are, and whether any stand longer than they are kept.

Every lane drops old letters of its own queues each minute (`fleet.workers.watch`). What is left here are queues that no
lane serves any more, though workers published an actor on them within a week, and lanes that do not run.

Not guaranteed: that a queue is found which neither a lane nor the catalogue names. On failure nothing is half dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from fleet import wire
from fleet.broker import keys
from fleet.broker.broker import FleetBroker
from fleet.broker.dead import kept, trim
from fleet.catalogue import read_catalogue
from fleet.clock import clock
from fleet.janitor import Measured, Stuck

_LANES_WORK = timedelta(minutes=2)  # real time: a lane that runs has dropped it by then


@dataclass(frozen=True)
class _Standing:
    queue: str
    letters: int
    over: int
    oldest: timedelta | None


class OldLetters:
    """A chore: the letters of every queue that a lane serves or workers published."""

    def __init__(self, broker: FleetBroker) -> None:
        self._broker = broker

    @cached_property
    def _standing(self) -> list[_Standing]:
        published = {str(entry["queue"]) for entry in read_catalogue(self._broker).values()}
        return [self._look(queue) for queue in sorted({*self._broker.lanes, *published})]

    def _look(self, queue: str) -> _Standing:
        kept_for, most = kept(self._broker, queue)
        now = clock.real_now()
        latest = wire.to_ms(now - clock.to_real(kept_for) - _LANES_WORK)
        key = keys.dead(self._broker.namespace, queue)
        with self._broker.client.pipeline(transaction=False) as pipe:
            pipe.zcard(key)
            pipe.zcount(key, "-inf", latest)
            pipe.zrange(key, 0, 0, withscores=True)
            letters, old, first = pipe.execute()
        over = old + max(0, letters - old - most)
        return _Standing(queue, letters, over, now - wire.from_ms(int(first[0][1])) if first and over else None)

    def measure(self) -> Measured:
        """Counts letters; raises what redis-py raises."""
        seen = self._standing
        oldest = max((one.oldest for one in seen if one.oldest is not None), default=None)
        return Measured(sum(one.letters for one in seen), sum(one.over for one in seen), 0, oldest)

    def find(self) -> Iterator[Stuck]:
        """One a queue."""
        for one in self._standing:
            if one.over:
                kept_for, most = kept(self._broker, one.queue)
                plan = f"dropped: kept for {kept_for.days} days, and {most:,} at most"
                yield Stuck(one.queue, f"{one.over:,} letters of {one.queue}", one.oldest, plan, one.over)

    def mend(self, stuck: Stuck) -> int:
        """Drop a queue's; a bounded number a pass. Raises what redis-py raises."""
        queue: Any = stuck.key
        return trim(self._broker, queue)
