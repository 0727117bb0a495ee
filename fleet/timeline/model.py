"""What a timeline is made of: a night, its lanes, their entries, and what each entry did when. Values only.

scheduled  it is to run then, for about so long; of elastic work the window that is to come
held       its message waits: in its queue, to be tried again, or (elastic work) because nothing is allowed
released   elastic work may go on, in as many chains as the allowance says
ran        a message of it ran
expired    a slot whose window passed before it could run
coalesced  a slot that gave way to a later one, or that came while the run before it still went
paused     a person paused it
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from fleet.overlaps import Overlap

Kind = Literal["scheduled", "held", "released", "paused", "coalesced", "expired", "ran"]
KINDS: tuple[Kind, ...] = ("scheduled", "held", "released", "paused", "coalesced", "expired", "ran")
"""Of two that hold at the same time the later one here is shown."""

BAD = ("failed", "deadline", "lost")
"""Outcomes of a run that somebody should look at."""


@dataclass(frozen=True)
class Night:
    """From one noon of a zone to the next: 24 hours, or 23 or 25 where its clocks are changed. Instants are in UTC."""

    begins: datetime
    ends: datetime
    zone: ZoneInfo

    @classmethod
    def of(cls, day: date, zone: ZoneInfo) -> Night:
        """The night that begins at noon of a day."""
        noon, next_noon = (
            datetime.combine(day + timedelta(days=more), time(12), zone).astimezone(UTC) for more in (0, 1)
        )
        return cls(noon, next_noon, zone)

    @classmethod
    def around(cls, now: datetime, zone: ZoneInfo) -> Night:
        """The night that an instant lies in."""
        local = now.astimezone(zone)
        return cls.of(local.date() - timedelta(days=local.hour < 12), zone)

    def share(self, instant: datetime) -> float:
        """Where an instant lies: 0 at the beginning, 1 at the end."""
        return (instant - self.begins) / (self.ends - self.begins)

    def told(self, instant: datetime) -> str:
        """An instant as the night's clocks show it."""
        return f"{instant.astimezone(self.zone):%H:%M}"

    def hours(self) -> list[datetime]:
        """The full hours of its clocks, ends included."""
        hour = timedelta(hours=1)
        return [self.begins + hour * number for number in range((self.ends - self.begins) // hour + 1)]


@dataclass(frozen=True)
class Segment:
    """What holds of an entry from one instant to another; `count` runs or slots in one, where it stands for several."""

    kind: Kind
    begins: datetime
    ends: datetime
    note: str = ""
    outcome: str = ""
    count: int = 1

    @property
    def bad(self) -> bool:
        return self.kind == "expired" or self.outcome in BAD


@dataclass(frozen=True)
class Step:
    """How many chains of elastic work were allowed from one instant to another, and why."""

    begins: datetime
    ends: datetime
    places: int
    reason: str
    text: str

    def told(self, cap: int) -> str:
        """How many, and why, in words."""
        many = f"{self.places} of {cap}"
        return f"{self.reason}, {self.text}" if many in self.text else f"{many}, {self.reason}: {self.text}"


@dataclass(frozen=True)
class Track:
    """An entry in a night: segments that never overlap, in order of time; `steps` out of `cap` for elastic work."""

    entry: str
    segments: tuple[Segment, ...]
    steps: tuple[Step, ...] = ()
    cap: int = 0


@dataclass(frozen=True)
class Often:
    """An entry with so many slots that they are counted; what went wrong with it has a track too."""

    entry: str
    slots: int
    ran: int
    bad: int


@dataclass(frozen=True)
class Load:
    """How many messages of a lane ran and how many waited, by a reading."""

    at: datetime
    in_flight: int
    ready: int


@dataclass(frozen=True)
class Row:
    """A lane."""

    lane: str
    tracks: tuple[Track, ...]
    often: tuple[Often, ...] = ()
    loads: tuple[Load, ...] = ()


@dataclass(frozen=True)
class Timeline:
    """A night, a row a lane; `now` is None where it only says what is planned."""

    night: Night
    now: datetime | None
    rows: tuple[Row, ...]
    overlaps: tuple[Overlap, ...]

    @property
    def title(self) -> str:
        first, last = (instant.astimezone(self.night.zone) for instant in (self.night.begins, self.night.ends))
        planned = "Planned: " if self.now is None else ""
        return f"{planned}{first:%a %d %b} – {last:%a %d %b %Y}, {self.night.zone.key}"

    def changes(self) -> list[str]:
        """Each change of an allowance with its reason, in a line each, in order of time."""
        steps = [(step, track) for row in self.rows for track in row.tracks for step in track.steps]
        return [
            f"{self.night.told(step.begins)} {track.entry} {step.told(track.cap)}"
            for step, track in sorted(steps, key=lambda pair: pair[0].begins)
        ]

    def remarks(self) -> list[str]:
        """In a sentence each: overlaps of heavy work, and what went wrong."""
        told = self.night.told
        said = [
            f"{told(one.begins)}–{told(one.ends)} {one.first} and {one.second} overlap {one.where}"
            for one in self.overlaps
        ]
        for row in self.rows:
            for track in row.tracks:
                for one in track.segments:
                    if one.bad:
                        said.append(f"{told(one.begins)} {track.entry} {one.outcome or one.kind}: {one.note}")
        return said
