"""Writes the ends of slots in the order they come, and keeps those that PostgreSQL did not take.

What is kept is written before the next end of this process, and after its next claim. That PostgreSQL is away is said
once, and once that it is back. Now and then a write also deletes old slots, a bounded number.

Not guaranteed: an end that is kept when the process dies, or when a thousand others are kept after it. Its slot stays
live until its lease lapses; its own message, delivered again, passes all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from fleet.clock import clock
from fleet.logs import brief, get_logger
from fleet.storage import slots

log = get_logger(__name__)

_KEPT = 1_000
_FORGETS_EVERY_SECONDS = 60.0

Write = Callable[[], bool]
"""Writes one end; False if the slot is no longer its delivery's. Raises `SlotsUnanswered`."""


class SlotEnds:
    """Of one process; its threads share it."""

    def __init__(self) -> None:
        self._kept: deque[tuple[slots.OfSlot, Write]] = deque(maxlen=_KEPT)
        self._away = False
        self._forgot_at = clock.monotonic()

    def write(self, of: slots.OfSlot, write: Write) -> None:
        """Write an end, after those that are kept; raises nothing for a PostgreSQL that does not answer."""
        self._kept.append((of, write))
        self.catch_up()

    def catch_up(self) -> None:
        """Write what is kept, as far as PostgreSQL takes it."""
        while self._kept:
            try:
                of, write = self._kept.popleft()
            except IndexError:  # another thread was quicker
                break
            try:
                written = write()
            except slots.SlotsUnanswered as error:
                self._kept.appendleft((of, write))
                self.away(error)
                return
            except Exception as error:  # an end that no row can hold; it may be another thread's
                log.exception("slot_end_refused", entry=of.entry, slot=of.slot.isoformat(), error=brief(error))
                continue
            if not written:
                log.warning("slot_end_was_stale", entry=of.entry, slot=of.slot.isoformat())
        if self._away:
            self._away = False
            log.info("slots_back")
        self._forget_old()

    def away(self, error: slots.SlotsUnanswered) -> None:
        """Say once that no slot can be claimed or ended."""
        if not self._away:
            self._away = True
            log.error("slots_unanswered", error=str(error), meanwhile="slots' messages wait, ends are kept")

    def _forget_old(self) -> None:
        if clock.monotonic() - self._forgot_at < _FORGETS_EVERY_SECONDS:
            return
        self._forgot_at = clock.monotonic()
        try:
            forgotten = slots.forget_old()
        except slots.SlotsUnanswered as error:
            self.away(error)
            return
        if forgotten:
            log.info("slots_forgotten", count=forgotten)
