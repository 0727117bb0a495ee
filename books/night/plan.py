"""The night's frame: which eight hours, how fast, and when people do what.

The schedule itself is `config/schedule.py`'s; nothing here repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from pathlib import Path
from random import Random

from books.calendar import BERLIN
from fleet.clock import Night

EVENING = datetime(2026, 3, 3, 0, 0, tzinfo=BERLIN)  # an ordinary night, far from a change of clocks
LENGTH = timedelta(hours=8)
ACCOUNTS = 300
RECEIPTS = 40
OCR_RECEIPTS = 12
BACKLOG = 30  # documents that nobody waits for: receipts once more, most of them one customer's
UPLOADS = 12  # of one receipt each, over the hours in which the backlogs drain
SUBMISSIONS = 6
EVALS = 20
_LEAD_SECONDS = 15.0  # real: what five lanes and two beats need to start on two cores, before the evening


@dataclass(frozen=True)
class Plan:
    """A night to be played in `seconds` of real time, with everything in it drawn from `seed`.

    Without `balance` nobody decides how many chains of elastic work run: their cron minutes stand. Without `crashes`
    nothing is killed. More than a handful of `submissions` come over the whole night, most of them in the morning.
    """

    seconds: float
    seed: int
    folder: Path
    balance: bool = True
    crashes: bool = True
    backlog: int = BACKLOG
    submissions: int = SUBMISSIONS
    evals: int = EVALS

    @property
    def begins(self) -> datetime:
        """The instant behind which slots are judged, in night time."""
        return EVENING

    @property
    def ends(self) -> datetime:
        """The last instant that is played, in night time."""
        return EVENING + LENGTH

    def clock_from(self, real_now: datetime) -> Night:
        """The night's clock if its processes are started now."""
        lead = _LEAD_SECONDS * max(1.0, self.seconds / 120)
        return Night(EVENING, real_now + timedelta(seconds=lead), LENGTH.total_seconds() / self.seconds)

    @property
    def beat_dies_at(self) -> datetime:
        """When the leading beat is killed: shortly before an entry's slot, so that its successor has to catch up."""
        hour, minute = Random(f"beat dies {self.seed}").choice([(3, 5), (3, 55), (4, 55)])
        return datetime.combine(EVENING.date(), time(hour, minute), BERLIN)


def at(hour: int, minute: int) -> datetime:
    """A time of day of the night."""
    return datetime.combine(EVENING.date(), time(hour, minute), BERLIN)
