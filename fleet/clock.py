"""The one module that tells the time.

Two clocks run in a fleet. *Real* time guards against real failure: budgets, row leases, the leader's term,
heartbeats. *Night* time is what the schedule speaks: slots, `expires`, retry delays, the latencies of the
sandbox. In production both are the same. `make night` plays eight hours in two minutes by making night time an
affine function of real time: `night = origin + (real - anchor) * rate`.

Not guaranteed: night time is as monotonic as the machine's wall clock, no more. Guards that must survive a jump
of the wall clock use `monotonic()`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol


class ClockSettings(Protocol):
    """What `configure` reads of the settings."""

    @property
    def clock_origin(self) -> datetime | None: ...
    @property
    def clock_anchor(self) -> datetime | None: ...
    @property
    def clock_rate(self) -> float: ...


@dataclass(frozen=True)
class Night:
    """The parameters of a night: at real `anchor` it is `origin`, and a real second is `rate` night seconds."""

    origin: datetime
    anchor: datetime
    rate: float

    def __post_init__(self) -> None:
        # In UTC: within one zone Python reckons by the wall, and is an hour off across a change of clocks.
        object.__setattr__(self, "origin", self.origin.astimezone(UTC))
        object.__setattr__(self, "anchor", self.anchor.astimezone(UTC))


class Clock:
    """Tells real and night time; a night is set once, at the start of a process."""

    def __init__(self, night: Night | None = None) -> None:
        self._night = night
        self._frozen: datetime | None = None

    @property
    def rate(self) -> float:
        """Night seconds a real second; 1.0 when no night is played."""
        return self._night.rate if self._night else 1.0

    def real_now(self) -> datetime:
        """The real instant, aware, in UTC."""
        return datetime.now(UTC)

    def now(self) -> datetime:
        """The instant the schedule speaks of, aware, in UTC."""
        return self.to_night(self.real_now())

    def to_night(self, real: datetime) -> datetime:
        """The night instant of a real one."""
        if self._frozen is not None:
            return self._frozen
        if self._night is None:
            return real
        return (self._night.origin + (real - self._night.anchor) * self._night.rate).astimezone(UTC)

    def to_real_instant(self, night: datetime) -> datetime:
        """The real instant of a night one; the inverse of `to_night`."""
        if self._frozen is not None:
            return self.real_now() + (night - self._frozen)
        if self._night is None:
            return night
        return (self._night.anchor + (night - self._night.origin) / self._night.rate).astimezone(UTC)

    def to_real(self, duration: timedelta) -> timedelta:
        """How much real time a night duration takes."""
        return duration / self.rate

    def monotonic(self) -> float:
        """Real seconds on a clock that never jumps and counts suspend, where the platform has one."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()

    def sleep(self, duration: timedelta) -> None:
        """Sleep for a night duration."""
        time.sleep(max(0.0, self.to_real(duration).total_seconds()))

    def set_night(self, night: Night | None) -> None:
        """Start (or, in tests, end) a night in this process."""
        self._night = night

    def freeze(self, at: datetime | None) -> None:
        """In tests: let night time stand at an instant, or (None) go on; real time goes on either way."""
        self._frozen = at if at is None else at.astimezone(UTC)


clock = Clock()


def configure(settings: ClockSettings) -> None:
    """Set this process's night from the settings; without an origin, night time is real time."""
    if settings.clock_origin is None:
        clock.set_night(None)
        return
    anchor = settings.clock_anchor or datetime.now(UTC)
    clock.set_night(Night(origin=settings.clock_origin, anchor=anchor, rate=settings.clock_rate))


def environment(night: Night) -> dict[str, str]:
    """The settings that hand this night to a child process."""
    return {
        "FLEET_CLOCK_ORIGIN": night.origin.isoformat(),
        "FLEET_CLOCK_ANCHOR": night.anchor.isoformat(),
        "FLEET_CLOCK_RATE": repr(night.rate),
    }
