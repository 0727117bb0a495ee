"""The schedule that is stored in Redis, as this process knows it: whose schedule it is, and what is due.

A pass over ten thousand entries of which none is due asks Redis one question, and hears its time with the answer
(`beat.now`). When each entry is due next is kept here; it is read anew when the stored schedule changed, when this
process takes office, and after whatever went wrong. So it is where Redis forgot fires (a failover to a replica that
lagged): each counts `judged` up there, and the leader counts along; where a look finds another number than the leader's
own, the marks are not those that it knows.

Not guaranteed: that what is known here is still so; the fire script checks it. A row in Redis that cannot be read is
said once and passed over, and the other entries go on.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import redis

from beat.catch_up import Instant, next_due
from beat.now import Now
from beat.revisions import ORPHANED, REVISIONS_KEPT, History, digest, history, spec
from fleet import wire
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.errors import FleetError
from fleet.ledger import LEDGER_LENGTH
from fleet.logs import get_logger

log = get_logger(__name__)

_HERE = Path(__file__).parent
_NAMED = 20  # of the entries that a registration ended
_LOOKS_LATE = 5.0  # seconds between two looks after which this process cannot say that nobody else looked


class StoredSchedule:
    """What a process knows of the schedule in Redis, and how it makes its own the stored one."""

    def __init__(self, broker: FleetBroker, schedule: Iterable[Entry], token: str, now: Now) -> None:
        self._broker, self._token, self._now = broker, token, now
        self._entries = {entry.name: entry for entry in schedule}
        self._look, self._register = (
            broker.client.register_script((_HERE / f"{name}.lua").read_text()) for name in ("look", "register")
        )
        self._digest: str | None = None
        self._registered = 0
        self.generation = self.judged = 0
        self.stale = False  # whether `judged` was another number there than here when it was last looked
        self._looked = self._unchanged_since = float("-inf")
        self._looks = b""
        self._texts: dict[str, bytes] = {}
        self.histories: dict[str, History] = {}
        self.marks: dict[str, int] = {}
        self._next: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []

    def register(self) -> None:
        """Make this process's schedule the stored one.

        Raises what Dramatiq raises where an entry's actor is not there.
        """
        queues = {name: self._broker.get_actor(entry.actor).queue_name for name, entry in self._entries.items()}
        specs = [(name, spec(entry, queues[name])) for name, entry in self._entries.items()]
        self._digest = digest(specs)
        ns = self._broker.namespace
        real = clock.real_now()
        answer: Any = self._register(
            keys=[
                *(keys.schedule(ns), keys.revisions(ns), keys.marks(ns)),
                *(keys.ledger(ns, name) for name in self._entries),
            ],
            args=[
                *(self._digest, self._token, *night_at(real), REVISIONS_KEPT, LEDGER_LENGTH),
                *(word for pair in specs for word in pair),
            ],
        )
        self._registered = int(answer[0])
        self._unchanged_since = clock.monotonic()
        if answer[1]:
            log.info("schedule_registered", entries=len(specs), generation=self._registered, digest=self._digest)
        if ended := sorted(name.decode(errors="replace") for name in answer[2]):
            # A release that left them out, or another application that has the same namespace.
            log.warning("entries_ended", ended=", ".join(ended[:_NAMED]), count=len(ended), namespace=ns)

    def look(self) -> None:
        """Ask Redis for its time and its schedule; registers this process's where it must, by a time it believes.

        Raises what redis-py raises when Redis does not answer.
        """
        if self._digest is None:
            self.register()
        self._see()
        if self._now.doubt is not None:
            return
        if self.generation < self._registered:
            log.error("schedule_forgotten", generation=self.generation, registered=self._registered)
            self._registered_anew()
        elif clock.monotonic() - self._unchanged_since >= ORPHANED.total_seconds():
            log.warning("schedule_taken_over", generation=self.generation, after=str(ORPHANED))
            self._registered_anew()

    def _registered_anew(self) -> None:
        self.register()
        self._see()

    def _asked(self) -> list[bytes]:
        answer: list[bytes] = self._look(keys=[keys.schedule(self._broker.namespace)], args=[self._digest or ""])
        return answer

    def _see(self) -> None:
        generation, stored, looks, judged = self._now.ask(self._asked)
        now = clock.monotonic()
        own = stored.decode() == self._digest
        # Only who looked all the time can say that nobody else did.
        if own or looks != self._looks or now - self._looked > _LOOKS_LATE:
            self._unchanged_since = now
        self._looks, self._looked = looks, now
        self.generation, self.stale = int(generation or 0), int(judged) != self.judged

    def looked_within(self, seconds: float) -> bool:
        return clock.monotonic() - self._looked < seconds

    def instant(self) -> Instant:
        """The night's time by the server's clock, as it was last heard and has run on since."""
        now = self._now.now()
        return Instant(now, now, clock.rate)

    def night(self) -> tuple[int, int, float]:
        """What the fire script needs to turn the server's time into the night's."""
        return night_at(self._now.real())

    def load(self) -> None:
        """Read marks and revisions, and reckon when each entry is due next.

        Raises what redis-py raises when Redis does not answer.
        """
        ns = self._broker.namespace
        with self._broker.client.pipeline(transaction=True) as pipe:
            pipe.hgetall(keys.revisions(ns))
            pipe.hgetall(keys.marks(ns))
            pipe.hget(keys.schedule(ns), "judged")
            texts, marks, counted = pipe.execute()
        judged = int(counted or 0)
        if judged < self.judged:
            log.error("fires_forgotten", fires=self.judged - judged)
        self.judged, self.stale = judged, False
        self._next, self._heap = {}, []
        before, self._texts = self._texts, {}
        histories, self.histories, self.marks = self.histories, {}, {}
        for raw, text in texts.items():
            name = raw.decode(errors="replace")
            try:
                known = histories[name] if before.get(name) == text else history(name, text.decode())
                mark = None if known is None else int(marks[raw])
                if known is None or mark is None:
                    continue
                self.histories[name], self.marks[name] = known, mark
                self._texts[name] = text
                self.reckon(name)
            except (ValueError, KeyError, TypeError, OverflowError, FleetError) as error:
                self.histories.pop(name, None)
                log.error("entry_unreadable", entry=name, found=text[:200], error=repr(error))

    def reckon(self, name: str, no_sooner: datetime | None = None) -> None:
        """Reckon when an entry is due next, from its mark."""
        due = next_due(self.histories[name], wire.from_ms(self.marks[name]))
        if due is None:
            self._next.pop(name, None)
            return
        self._next[name] = due if no_sooner is None else max(due, no_sooner)
        heapq.heappush(self._heap, (self._next[name], name))

    def due_until(self, instant: datetime) -> list[tuple[str, datetime]]:
        """The entries that will be due by an instant, and when."""
        return [(name, due) for name, due in self._next.items() if due <= instant]

    def take_due(self, now: datetime) -> list[str]:
        """The entries that are due, those due first first; each is due again when it is reckoned again."""
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now:
            at, name = heapq.heappop(self._heap)
            if self._next.get(name) == at:
                del self._next[name]
                due.append(name)
        return due


def night_at(real: datetime) -> tuple[int, int, float]:
    """A real instant, the night's at it, both in milliseconds, and night milliseconds a real one."""
    at = wire.to_ms(real)
    return at, wire.to_ms(clock.to_night(wire.from_ms(at))), clock.rate


Unusable = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.NoPermissionError,
)
"""What Redis answers when it can be used for no entry."""
