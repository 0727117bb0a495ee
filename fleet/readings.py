"""Readings of all queues, lanes and actors, kept in Redis with when they were taken; a stale one says so.

(skeleton: the names are fixed, the work follows)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.probe import QueueReading

STALE_AFTER = timedelta(seconds=180)
"""Night time from which on a reading says nothing about now."""


@dataclass(frozen=True)
class LaneReading:
    """A lane in the last minutes: cores its processes used (None if not counted), messages held, worker processes."""

    cpu_cores: float | None
    in_flight: int
    consumers: int


@dataclass(frozen=True)
class ActorReading:
    """What an actor's bodies took in the last night minutes, as far as they ended: how many, CPU and wall, in real time."""

    jobs: int
    cpu: timedelta
    wall: timedelta


@dataclass(frozen=True)
class Readings:
    """One reading; `at` is night time by the server's clock, `by` the role that took it (`beat`, `housekeeping`).

    `taken` says when each role took its last one.
    """

    at: datetime
    by: str
    queues: Mapping[str, QueueReading]
    lanes: Mapping[str, LaneReading]
    actors: Mapping[str, ActorReading]
    taken: Mapping[str, datetime] = field(default_factory=dict)
    ahead: timedelta = field(default=timedelta(0), compare=False, repr=False)
    """By how much the server's clock is ahead of this process's, in night time."""

    def age(self) -> timedelta:
        """How old it is now, in night time."""
        return max(timedelta(0), clock.now() + self.ahead - self.at)

    @property
    def stale(self) -> bool:
        return self.age() > STALE_AFTER


@dataclass(frozen=True)
class Moment:
    """A reading of the past, in short: ready, delayed, in flight, dead and the oldest's age a queue."""

    at: datetime
    queues: Mapping[str, QueueReading]


def take(broker: FleetBroker, by: str) -> Readings:
    """Read every queue of the loaded application, and store it unless a newer reading stands."""
    raise NotImplementedError


def latest(broker: FleetBroker) -> Readings | None:
    """The newest reading that was stored, None if there is none; one round trip."""
    raise NotImplementedError


def history(broker: FleetBroker, since: datetime) -> list[Moment]:
    """The readings since a night instant, one a night minute at most, oldest first."""
    raise NotImplementedError
