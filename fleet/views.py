"""What the command line prints: jobs with their budgets, the schedule, and what runs now, as rich tables."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from rich.table import Table
from rich.text import Text

from fleet import probe
from fleet.app import App, effective_budget
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.errors import DeclarationInvalid
from fleet.slots import next_slot
from fleet.workers.presence import Job, Report, present


def span(duration: timedelta | None) -> str:
    """A duration in the words of a person: `7m30s`, `2h`, `1d4h`; `-` for none."""
    if duration is None:
        return "-"
    seconds = round(duration.total_seconds())
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def _place(app: App, declared_at: str) -> str:
    path, _, line = declared_at.rpartition(":")
    try:
        return f"{Path(path).resolve().relative_to(app.root)}:{line}"
    except ValueError:
        return declared_at


def jobs_table(app: App) -> Table:
    """Every actor: queue, lane, soft and hard budget, whose budget it is, the reason, and where it is declared."""
    table = Table("actor", "queue", "lane", "soft", "hard", "from", "because", "declared at", title="Jobs")
    for actor in sorted(app.actors.values(), key=lambda actor: (actor.queue_name, actor.actor_name)):
        lane = app.lane_of(actor.queue_name)
        budget = effective_budget(actor, lane) if lane else actor.budget
        table.add_row(
            actor.actor_name,
            actor.queue_name,
            lane.name if lane else "no lane",
            span(budget.soft) if budget else "-",
            span(budget.hard) if budget else "-",
            "actor" if actor.budget else "lane",
            budget.because if budget else "",
            _place(app, actor.declared_at),
        )
    return table


def schedule_table(app: App, at: str | None) -> Table:
    """Entries in order of their next slot; with `at` (HH:MM, each entry's own zone) those due at that minute."""
    table = Table("next slot", "entry", "cron or interval", "expires", "lane", "soft/hard", "because", title="Schedule")
    rows = []
    for entry in app.schedule:
        after = clock.now() if at is None else _just_before(at, entry)
        slot = next_slot(entry, after)
        if slot is not None and (at is None or slot - after <= timedelta(minutes=1)):
            rows.append((slot, entry))
    for slot, entry in sorted(rows, key=lambda row: row[0]):
        actor = app.actor(entry.actor)
        lane = app.lane_of(actor.queue_name)
        budget = effective_budget(actor, lane) if lane else actor.budget
        table.add_row(
            f"{slot.astimezone(ZoneInfo(entry.tz)):%a %H:%M:%S}",
            entry.name,
            entry.cron or f"every {span(entry.every)}",
            span(entry.expires),
            lane.name if lane else "no lane",
            f"{span(budget.soft)}/{span(budget.hard)}" if budget else "-",
            entry.because,
        )
    return table


def _just_before(at: str, entry: Entry) -> datetime:
    try:
        moment = time.fromisoformat(at)
    except ValueError:
        raise DeclarationInvalid(f"--at {at!r}: give a time of day as HH:MM, for example 03:10.") from None
    today = clock.now().astimezone(ZoneInfo(entry.tz)).date()
    return datetime.combine(today, moment, ZoneInfo(entry.tz)) - timedelta(microseconds=1)


def status_tables(app: App, broker: FleetBroker) -> list[Table]:
    """Lanes with their processes and queues, the beats, and the jobs that run now with their budgets."""
    reports = present(broker.client, broker.namespace)
    return [lanes_table(app, broker, reports), beats_table(reports), running_table(reports)]


def lanes_table(app: App, broker: FleetBroker, reports: list[Report]) -> Table:
    """One row a queue: how many wait, are delayed, are held, died, and for how long the first has waited."""
    readings = {
        reading.queue: reading for reading in probe.read(broker, (q for lane in app.lanes for q in lane.queues))
    }
    table = Table("lane", "workers", "queue", "waiting", "oldest", "delayed", "held", "dead letters", title="Lanes")
    for lane in app.lanes:
        workers = sum(report.serves and report.name == lane.name for report in reports)
        for queue in lane.queues:
            reading = readings[queue]
            table.add_row(
                lane.name,
                f"{workers}/{lane.processes}",
                queue,
                str(reading.ready),
                span(reading.oldest_age),
                str(reading.delayed),
                str(reading.in_flight),
                str(reading.dead),
            )
    return table


def beats_table(reports: list[Report]) -> Table:
    """The beat replicas, and who leads."""
    table = Table("beat", "host", "pid", "", title="Beat")
    for report in (report for report in reports if report.kind == "beat"):
        table.add_row(
            (report.worker_id or "")[:8], report.host, str(report.pid), "leads" if report.leads else "follows"
        )
    return table


def running_table(reports: list[Report], most: int = 30) -> Table:
    """The jobs that run now and how much of their soft and hard budget is used: those over soft first, and in red."""
    table = Table("job", "lane", "phase", "runs for", "host", "pid", "message", title="Running now")
    now = clock.real_now()
    jobs = [(job, report) for report in reports for job in report.jobs]
    for job, report in sorted(jobs, key=lambda pair: (not _over_soft(pair[0], now), pair[0].since))[:most]:
        table.add_row(
            # Plain: a message's actor and id can be anything, rich's markup too.
            Text(job.actor),
            report.name,
            job.phase,
            f"{span(now - job.since)} of {span(job.soft)}/{span(job.hard)}",
            report.host,
            str(report.pid),
            Text(job.message_id),
            style="red" if _over_soft(job, now) else None,
        )
    if len(jobs) > most:
        table.caption = f"and {len(jobs) - most} more"
    return table


def _over_soft(job: Job, now: datetime) -> bool:
    return job.soft is not None and now - job.since > job.soft
