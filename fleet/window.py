"""When an elastic entry's night opens, ends and closes, as instants, and what it may run where nobody decides.

    opens --- slot --------- deadline --- day --------- closes
      chains as decided                     one at most
              the cap, where nobody decides

With a quota the night closes at the deadline: whoever is awake then needs the quota's places.

Not guaranteed: windows of the length written, in a night in which the clocks change: each end is where the wall clock
shows its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from fleet.declarations import Elastic, Entry, after_opening

DAY_LASTS = timedelta(
    minutes=90
)  # the simulated nights end so long after their day begins; what lies behind was not tried


@dataclass(frozen=True)
class Window:
    """One night of an elastic entry, in UTC."""

    opens: datetime
    slot: datetime
    deadline: datetime
    day: datetime
    closes: datetime

    def holds(self, instant: datetime) -> bool:
        """Whether the instant lies in this night."""
        return self.opens <= instant < self.closes

    def holdable_until(self, now: datetime) -> datetime:
        """The last instant that a person may hold the entry to: the deadline, or, behind it, the end of the night."""
        return self.deadline if now < self.deadline else self.closes

    def level(self, cap: int, now: datetime) -> int:
        """How many chains run where nobody decides: all from the slot to the day, or to the end if that is before."""
        return cap if self.slot <= now < min(self.day, self.closes) else 0


def elastic_of(entry: Entry) -> Elastic:
    """What an elastic entry declares."""
    if entry.elastic is None:
        raise TypeError(f"Entry({entry.name!r}) is not elastic")
    return entry.elastic


def window(entry: Entry, now: datetime) -> Window:
    """The night of an elastic entry that an instant lies in; between two nights the next one."""
    zone = ZoneInfo(entry.tz)
    today = now.astimezone(zone).date()
    nights = (_night(entry, zone, today + timedelta(days=by)) for by in (-1, 0, 1))
    return next(night for night in nights if now < night.closes)


def level(entry: Entry, now: datetime) -> int:
    """How many chains of an elastic entry run where nobody decides."""
    return window(entry, now).level(elastic_of(entry).cap, now)


def _night(entry: Entry, zone: ZoneInfo, opening: date) -> Window:
    elastic = elastic_of(entry)
    opens, deadline = elastic.window
    ends = _at(zone, opening, opens, deadline)
    day = _at(zone, opening, opens, elastic.day)
    return Window(
        opens=_at(zone, opening, opens, opens),
        slot=_at(zone, opening, opens, elastic.slot),
        deadline=ends,
        day=day,
        closes=ends if elastic.quota is not None else day + DAY_LASTS,
    )


def _at(zone: ZoneInfo, opening: date, opens: time, wall: time) -> datetime:
    """The instant of a time of day in the night that opens on a date."""
    passed = datetime.combine(opening, opens) + after_opening(wall, opens)
    return datetime.combine(passed.date(), wall, zone).astimezone(UTC)
