"""What an explanation is, and how its lines speak of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from fleet.app import App
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.night_plan import zone_of
from fleet.views import span
from fleet.workers.presence import Job, Report

MOST_LINES = 10

Kind = Literal["lane", "entry", "message", "run"]


@dataclass(frozen=True)
class Explanation:
    """Why something of a kind stands where it stands and what happens next, in at most ten lines."""

    kind: Kind
    name: str
    lines: tuple[str, ...]

    @classmethod
    def of(cls, kind: Kind, name: str, lines: Iterable[str]) -> Explanation:
        return cls(kind, name, tuple(lines)[:MOST_LINES])


@dataclass(frozen=True)
class Asked:
    """What every explanation reads from: the application, its broker, now (night time), and what processes report."""

    app: App
    broker: FleetBroker
    now: datetime
    reports: Sequence[Report]

    @property
    def zone(self) -> ZoneInfo:
        """The zone that instants are told in."""
        return zone_of(self.app.schedule)

    def told(self, instant: datetime) -> str:
        """A night instant: the time of day, with the date where it is not of today."""
        local, today = instant.astimezone(self.zone), self.now.astimezone(self.zone)
        return f"{local:%H:%M}" if local.date() == today.date() else f"{local:%a %d %b %H:%M}"

    def ahead(self, instant: datetime) -> str:
        """A night instant that is to come: when, and in how long."""
        left = instant - self.now
        return f"{self.told(instant)} (in {span(left)})" if left.total_seconds() > 0 else f"{self.told(instant)} (now)"

    def jobs(self) -> list[tuple[Job, Report]]:
        """The jobs that run now and the processes they run in, longest first."""
        found = [(job, report) for report in self.reports for job in report.jobs]
        return sorted(found, key=lambda pair: pair[0].since)

    def serving(self, queue: str) -> str:
        """How many processes of its lane serve a queue, in words that say what to do where none does."""
        lane = self.app.lane_of(queue)
        if lane is None:
            return f"no lane of this application serves {queue}"
        count = sum(report.serves and report.name == lane.name for report in self.reports)
        if not count:
            return f"NO process serves lane {lane.name}: start `fleet work {lane.name}`"
        return f"{count} of {lane.processes} processes serve lane {lane.name}"


def running(job: Job, report: Report) -> str:
    """Where a job runs, for how long, and of which budget; real time."""
    ran = clock.real_now() - job.since
    over = " (over its soft budget)" if job.soft is not None and ran > job.soft else ""
    return (
        f"on {report.host}, pid {report.pid}, for {span(ran)} of its budget {span(job.soft)}/{span(job.hard)}{over}"
        f", phase {job.phase or '?'}"
    )


def plain(text: object, most: int = 160) -> str:
    """Words out of a message or a row, fit for one line."""
    shown = "".join(one if one.isprintable() else " " for one in str(text))
    return shown if len(shown) <= most else shown[: most - 1] + "…"
