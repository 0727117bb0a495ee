"""The alarm clock: APScheduler rings at each slot of each entry, and decides nothing.

Slots come from `fleet.slots`; the trigger only turns them into real instants. The executor hands the entry's name on
and keeps no count, so that APScheduler's rules on misfires, coalescing and instances never apply. A ring that is lost
costs lateness alone: the beat's ordinary pass looks at every entry anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.executors.base import BaseExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from fleet.clock import clock
from fleet.declarations import Entry
from fleet.slots import next_slot

# A slot turned real and back may come out microseconds early, and would then be rung for ever.
_PAST_ROUNDING = timedelta(milliseconds=500)


class _SlotTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler 3 has no types
    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        after = (
            clock.to_night(now) if previous_fire_time is None else clock.to_night(previous_fire_time) + _PAST_ROUNDING
        )
        slot = next_slot(self._entry, after)
        return None if slot is None else clock.to_real_instant(slot)

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


def alarm_clock(schedule: Iterable[Entry], ring: Callable[[str], None]) -> BackgroundScheduler:
    """A scheduler, not started yet, that calls `ring(entry name)` at each slot, from its own thread."""
    scheduler = BackgroundScheduler(timezone=UTC, daemon=True)
    scheduler.add_executor(_Ringer(ring), alias="default")
    for entry in schedule:
        scheduler.add_job(_never_called, trigger=_SlotTrigger(entry), id=entry.name, name=entry.name)
    return scheduler


def _never_called() -> None:
    raise AssertionError("APScheduler rings; it runs nothing")
