"""The alarm clock: APScheduler rings at each slot of each entry, and decides nothing.

Slots come from `fleet.slots`; the trigger only says where on the machine's wall clock they lie (`beat.now`), since that
is the clock APScheduler looks at. The executor hands the entry's name on and keeps no count, so that APScheduler's
rules on misfires, coalescing and instances never apply. However many slots passed while nobody looked, an entry rings
once. A ring that is lost costs lateness alone: the beat's ordinary pass looks at every entry anyway.

What fails, and what follows: APScheduler drops a job whose trigger returns nothing, and its thread dies of a trigger or
a store that raises. Here both are logged, and the entry rings again a second later. If the thread dies or hangs all the
same, `complaint` says so within 10 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.executors.base import BaseExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from beat.now import Now
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.logs import get_logger
from fleet.slots import next_slot, offset

log = get_logger(__name__)

_PAST_THE_SLOT = timedelta(milliseconds=2)  # a ring that comes early finds nothing due
_AFTER_A_FAULT = timedelta(seconds=1)
_WHERE_NO_SLOT_COMES = timedelta(days=1)
_TURN_SECONDS = 1.0
_SILENT_SECONDS = 7.0  # a replica is to be unready 10 s after its alarm clock died


class _SlotTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler 3 has no types
    """Keeps when the slot is due that it rings for: turned into an instant and back it could be microseconds off."""

    def __init__(self, entry: Entry, now: Now) -> None:
        self._entry, self._now, self._offset = entry, now, offset(entry)
        self._due: datetime | None = None
        self._at = self._rang_at = datetime.min.replace(tzinfo=UTC)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        if previous_fire_time is None or previous_fire_time != self._rang_at:  # APScheduler asks twice about each
            self._rang_at = previous_fire_time or self._rang_at
            self._find_next(now)
        return self._at

    def set_again(self) -> datetime:
        """Where on the wall clock its slot is due now."""
        if self._due is not None:
            self._at = self._now.to_wall(self._due) + _PAST_THE_SLOT
        return self._at

    def _find_next(self, wall: datetime) -> None:
        try:
            now, due = self._now.now(), self._due
            if due is None or due <= now:  # else it rang too early, by a clock that jumped: it rings again
                slot = next_slot(self._entry, now - self._offset)
                due = None if slot is None else slot + self._offset
        except Exception:
            log.exception("trigger_broke", entry=self._entry.name, again_in=str(_AFTER_A_FAULT))
            self._due, self._at = None, wall + _AFTER_A_FAULT
            return
        self._due, self._at = due, wall + _WHERE_NO_SLOT_COMES
        self.set_again()

    def __str__(self) -> str:
        return f"slots of {self._entry.name}"


class _Ringer(BaseExecutor):  # type: ignore[misc]
    def __init__(self, ring: Callable[[str], None]) -> None:
        super().__init__()
        self._ring = ring

    def submit_job(self, job: Any, run_times: list[datetime]) -> None:
        self._ring(job.id)

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        raise NotImplementedError("submit_job keeps no count of instances")


class _Scheduler(BackgroundScheduler):  # type: ignore[misc]
    """Turns once a second at least, survives what a turn raises, and can be told to set all jobs again."""

    turned_at: float | None = None  # before it was started
    to_be_set = False

    def _process_jobs(self) -> float:
        wait: float | None = None
        try:
            if self.to_be_set:
                self.to_be_set = False
                for job in self.get_jobs():
                    job.modify(next_run_time=job.trigger.set_again())
            wait = super()._process_jobs()
        except Exception:
            log.exception("alarm_broke", again_in=f"{_TURN_SECONDS:g}s")
        self.turned_at = clock.monotonic()
        return _TURN_SECONDS if wait is None else min(wait, _TURN_SECONDS)


class AlarmClock:
    """Calls `ring(entry name)` at each slot, from its own thread, once started."""

    def __init__(self, schedule: Iterable[Entry], ring: Callable[[str], None], now: Now) -> None:
        self.scheduler = _Scheduler(timezone=UTC, daemon=True, jobstore_retry_interval=_AFTER_A_FAULT.total_seconds())
        self.scheduler.add_executor(_Ringer(ring), alias="default")
        for entry in schedule:
            self.scheduler.add_job(_never_called, trigger=_SlotTrigger(entry, now), id=entry.name, name=entry.name)

    def start(self) -> None:
        self.scheduler.start()
        self.scheduler.turned_at = clock.monotonic()  # the slots of ten thousand entries take their time

    def stop(self) -> None:
        """Ring no more. A thread that died or hangs is left; it ends with the process."""
        if self.complaint() is None:
            self.scheduler.shutdown(wait=False)

    def set_again(self) -> None:
        """Find each slot on the wall clock again, which jumped."""
        self.scheduler.to_be_set = True
        self.scheduler.wakeup()

    def complaint(self) -> str | None:
        """What is wrong with its thread; None if nothing is, or before it is started: a beat waits for Redis first."""
        turned_at = self.scheduler.turned_at
        silent = 0.0 if turned_at is None else clock.monotonic() - turned_at
        if silent < _SILENT_SECONDS:
            return None
        return f"the alarm clock has not turned for {silent:.0f} s: its thread died or hangs"


def _never_called() -> None:
    raise AssertionError("APScheduler rings; it runs nothing")
