"""The loop that fires: at each ring for the entries that rang, and every second for all.

While Redis does not answer it says so once and goes on. A pass hears the server's clock; where the alarm turns out to
ring beside it, that is set again. `ready` and `healthy` are its half of the probes: a replica is not ready when its
last look at the whole schedule is 10 s old or the server's clock is doubted (`beat.now`), and not healthy when the loop
itself has not turned for 15 s. Calls to Redis end by their own timeouts before that, so such a loop hangs.

Not guaranteed: a ring that came while Redis was away is not kept; the pass every second finds what it rang for.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable
from typing import Protocol

import redis

from beat.now import Now
from fleet.clock import clock
from fleet.logs import get_logger

log = get_logger(__name__)

_PASS_SECONDS = 1.0
_STALE_SECONDS = 10.0
_HUNG_SECONDS = 15.0
_RINGS_AT_ONCE = 1_000
_ALL = None
Ring = str | None
"""An entry's name, or None for all."""


class PassesOver(Protocol):
    """What gives slots their verdicts."""

    def pass_over(self, names: Iterable[str] | None = None) -> None: ...


class Firing:
    """Runs in the main thread; `ring` and `stop` may be called from any, and from a signal's handler."""

    def __init__(self, firer: PassesOver, now: Now, clock_moved: Callable[[], None] = lambda: None) -> None:
        self._firer, self._now, self._clock_moved = firer, now, clock_moved
        self._rings: queue.SimpleQueue[Ring] = queue.SimpleQueue()
        self._stopped = self._lost = False
        self._turned_at: float | None = None
        self._looked_at: float | None = None

    def ring(self, name: Ring = _ALL) -> None:
        self._rings.put(name)

    def stop(self) -> None:
        self._stopped = True
        self._rings.put(_ALL)

    def healthy(self) -> str | None:
        """Why a restart is what helps; None if the loop turns."""
        silent = 0.0 if self._turned_at is None else clock.monotonic() - self._turned_at
        return None if silent < _HUNG_SECONDS else f"firing has hung for {silent:.0f} s"

    def ready(self) -> str | None:
        """Why this replica could not fire if it led; None if it could."""
        if doubt := self._now.doubt:
            return doubt
        if self._looked_at is None:
            return "no pass over the schedule yet: Redis away or just started"
        silent = clock.monotonic() - self._looked_at
        if silent < _STALE_SECONDS:
            return None
        return f"the last pass over the schedule was {silent:.0f} s ago: Redis away or thread hung"

    def run(self) -> None:
        """Fire until stopped."""
        next_pass = clock.monotonic()
        while not self._stopped:
            rung = self._rung_until(next_pass)
            if self._stopped:
                return
            if clock.monotonic() >= next_pass:  # however often some ring, those whose ring was lost get their pass
                rung, next_pass = _ALL, clock.monotonic() + _PASS_SECONDS
            self._turned_at = clock.monotonic()
            self._turn(rung)

    def _rung_until(self, instant: float) -> list[str] | None:
        """The entries that rang, all that have by now; None for all entries."""
        rung: dict[str, None] = {}
        try:
            ring = self._rings.get(timeout=max(0.0, instant - clock.monotonic()))
            while ring is not _ALL and len(rung) < _RINGS_AT_ONCE:
                rung[ring] = None
                ring = self._rings.get_nowait()
        except queue.Empty:
            return list(rung) or _ALL
        return _ALL if ring is _ALL else list(rung)

    def _turn(self, rung: list[str] | None) -> None:
        try:
            self._firer.pass_over(rung)
            self._looked_at = clock.monotonic() if rung is _ALL else self._looked_at
            if self._now.moved():
                self._clock_moved()
        except redis.RedisError as error:
            if not self._lost:
                log.error("beat_cannot_fire", error=str(error))
            self._lost = True
        except Exception:  # whatever it is, the next pass may go well
            log.exception("beat_pass_broke", entries=rung)
        else:
            if self._lost:
                log.warning("beat_fires_again")
            self._lost = False
