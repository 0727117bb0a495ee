"""A night that stands still until it is moved, and what the beat's scripts left in Redis."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from dramatiq import Message

from fleet import Entry, ledger, wire
from fleet.broker import keys
from fleet.clock import Night, clock
from fleet.slots import slots_between

START = datetime(2026, 3, 2, 1, 0, 10, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
_TICK = timedelta(microseconds=1)


def into_a_second(share: float) -> None:
    """Sleep to that place within a second of real time, so that what a test sleeps then spans the seconds it means."""
    time.sleep((share - time.time()) % 1.0)


class StandingNight:
    """A thousandth as fast as real time, so that a test's seconds are milliseconds of it. The server's TIME rules."""

    def move_to(self, instant: datetime) -> None:
        clock.set_night(Night(origin=instant, anchor=clock.real_now(), rate=0.001))

    def shift(self, duration: timedelta) -> None:
        self.move_to(clock.now().replace(microsecond=0) + duration)


class Beaten:
    """Ledgers and messages of one namespace."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    def lines(self, entry: str) -> list[ledger.LedgerLine]:
        return ledger.read(self._client, self._namespace, entry)

    def verdicts(self, entry: str) -> list[tuple[str, str, str, int]]:
        """(verdict, first slot, last slot, count) of an entry's slots, oldest first; slots as HH:MM:SS."""
        return [
            (line.verdict, f"{line.first:%H:%M:%S}", f"{line.last:%H:%M:%S}", line.count)
            for line in self.lines(entry)
            if line.judges
        ]

    def events(self, entry: str) -> list[str]:
        return [line.verdict for line in self.lines(entry)]

    def judged(self, entry: Entry) -> list[datetime]:
        """Every slot that has a verdict, as often as it has one."""
        return list(_slots(entry, self.lines(entry.name)))

    def messages(self, queue: str = "work") -> list[Message[Any]]:
        """In the order in which a worker would take them up."""
        ids = self._client.lrange(keys.queue(self._namespace, queue), 0, -1)
        bodies = self._client.hgetall(keys.bodies(self._namespace, queue))
        assert set(bodies) == set(ids), "an id without a body, or a body without an id"
        return [Message.decode(bodies[message_id]) for message_id in ids]

    def slots(self, queue: str = "work") -> list[datetime]:
        """The slots of the messages that wait."""
        return [wire.from_ms(message.options[wire.SLOT]) for message in self.messages(queue)]

    def end_all(self, queue: str = "work") -> None:
        """All messages end, as if a worker had run them."""
        self._client.delete(keys.queue(self._namespace, queue), keys.bodies(self._namespace, queue))

    def everything(self) -> dict[bytes, bytes | None]:
        """All that stands in the namespace, but the leader's lock, to be compared."""
        found = sorted(self._client.scan_iter(f"{self._namespace}:*"))
        return {key: self._client.dump(key) for key in found if key.decode() != keys.leader(self._namespace)}


def _slots(entry: Entry, lines: Iterable[ledger.LedgerLine]) -> Iterator[datetime]:
    for line in lines:
        if line.judges:
            slots = list(slots_between(entry, line.first - _TICK, line.last))
            assert len(slots) == line.count, line
            yield from slots
