"""Lanes: of each queue depth, age and lag; of each lane its processes and what runs, of which budget."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from starlette.requests import Request

from fleet import probe
from fleet.clock import clock
from fleet.console.desk import Desk
from fleet.console.rendering import Page
from fleet.declarations import Lane
from fleet.probe import QueueReading
from fleet.workers.presence import DRAINING, Job, Report, present

MOST_JOBS = 100


@dataclass(frozen=True)
class LaneRow:
    """A lane, its queues as they were read, and its processes."""

    lane: Lane
    queues: tuple[QueueReading, ...]
    workers: tuple[Report, ...]
    supervisors: tuple[Report, ...]

    @property
    def serving(self) -> int:
        """Worker processes that take messages."""
        return sum(report.serves for report in self.workers)

    @property
    def running(self) -> int:
        """Jobs that a process of it holds on its board."""
        return sum(len(report.jobs) for report in self.workers)

    @property
    def places(self) -> int:
        """How many jobs the processes that serve it may run at once."""
        return self.serving * self.lane.threads

    @property
    def used(self) -> float:
        """The part of its places that is taken."""
        return self.running / self.places if self.places else 0.0

    @property
    def full(self) -> str:
        """The tone of its bar: whether a message that comes now has to wait for one that runs."""
        return "warn" if self.places and self.running >= self.places else ""

    @property
    def left(self) -> int:
        """Messages that have not ended."""
        return sum(queue.left for queue in self.queues)

    @property
    def oldest(self) -> timedelta | None:
        """The age of its oldest message that is due."""
        return max((queue.oldest_age for queue in self.queues if queue.oldest_age is not None), default=None)

    @property
    def lag(self) -> timedelta | None:
        """Of its queues' p95 from due to start the longest."""
        return max((queue.lag_p95 for queue in self.queues if queue.lag_p95 is not None), default=None)

    @property
    def tone(self) -> str:
        """How it stands: nobody serves it, not everybody does, all is well."""
        return "bad" if not self.serving else "warn" if self.serving < self.lane.processes else "good"

    @property
    def says(self) -> str:
        """The same in a word."""
        if any(report.phase == DRAINING for report in self.supervisors):
            return "draining"
        return {"bad": "nobody serves it", "warn": "short of processes", "good": "serving"}[self.tone]


@dataclass(frozen=True)
class Running:
    """A job that runs now, where, and for how long."""

    job: Job
    report: Report
    ran: timedelta

    @property
    def of_hard(self) -> float:
        """The part of its hard budget that is used, up to 1."""
        return min(1.0, self.ran / self.job.hard) if self.job.hard else 0.0

    @property
    def tone(self) -> str:
        """Whether it is over its soft budget."""
        return "bad" if self.job.soft is not None and self.ran > self.job.soft else ""


def rows(desk: Desk, reports: list[Report]) -> list[LaneRow]:
    """Every lane, in the order it is declared."""
    readings = {reading.queue: reading for reading in probe.read(desk.broker, desk.queues)}
    return [
        LaneRow(
            lane,
            tuple(readings[queue] for queue in lane.queues),
            tuple(report for report in reports if report.kind == "worker" and report.name == lane.name),
            tuple(report for report in reports if report.kind == "supervisor" and report.name == lane.name),
        )
        for lane in desk.app.lanes
    ]


def running(reports: list[Report], now: datetime) -> list[Running]:
    """The jobs that run now, those over their soft budget first, then those that have run longest."""
    jobs = [Running(job, report, max(timedelta(0), now - job.since)) for report in reports for job in report.jobs]
    return sorted(jobs, key=lambda one: (one.tone != "bad", one.job.since))


def build(desk: Desk, request: Request) -> dict[str, Any]:
    reports = present(desk.broker.client, desk.broker.namespace)
    jobs = running(reports, clock.real_now())
    return {
        "lanes": rows(desk, reports),
        "jobs": jobs[:MOST_JOBS],
        "more": max(0, len(jobs) - MOST_JOBS),
        "processes": [report for report in reports if report.kind != "beat"],
    }


PAGE = Page("/lanes", "Lanes", "lanes.html", build, live=True)
