"""What the command line prints: jobs with their budgets, the schedule, and what runs now, as rich tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from rich.table import Table
from rich.text import Text

from fleet import ledger, probe
from fleet.actor import FleetActor
from fleet.app import App, effective_budget
from fleet.bounds import LOST_MARGIN, Bound, bound_of
from fleet.broker import FleetBroker
from fleet.by_hand import Pause
from fleet.clock import clock
from fleet.declarations import Entry, Lane
from fleet.errors import DeclarationInvalid
from fleet.slots import next_slot, offset
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


def fine_span(duration: timedelta) -> str:
    """As `span`, but in `340ms` and `5.2s` below ten seconds."""
    seconds = duration.total_seconds()
    return span(duration) if seconds >= 10 else f"{seconds:.1f}s" if seconds >= 1 else f"{seconds * 1000:.0f}ms"


def _place(app: App, declared_at: str) -> str:
    path, _, line = declared_at.rpartition(":")
    try:
        return f"{Path(path).resolve().relative_to(app.root)}:{line}"
    except ValueError:
        return declared_at


def jobs_tables(app: App) -> list[Table]:
    """A table a lane, of its actors: queue, soft and hard budget, whose it is, the reason, and where it is declared.

    Under each stands by when a job's row is terminal. Actors whose queue no lane serves come last.
    """
    tables = []
    for lane in (*app.lanes, None):
        actors = [actor for actor in app.actors.values() if app.lane_of(actor.queue_name) == lane]
        if lane is None and not actors:
            continue
        table = Table(title=f"Lane {lane.name}" if lane else "No lane serves these", caption_justify="left")
        table.add_column("actor", overflow="fold", no_wrap=True)  # to be searched for; nothing is cut
        for column in ("queue", "soft", "hard", "from", "because"):
            table.add_column(column, overflow="fold")
        table.add_column("declared at", overflow="fold", no_wrap=True)
        for actor in sorted(actors, key=lambda actor: (actor.queue_name, actor.actor_name)):
            table.add_row(*_job_row(app, actor, lane))
        if lane is not None:
            table.caption = Text(_bound(bound_of(app, lane, clock.now())))
        tables.append(table)
    return tables


def _job_row(app: App, actor: FleetActor[Any, Any], lane: Lane | None) -> tuple[str, ...]:
    budget = effective_budget(actor, lane) if lane else actor.budget
    return (
        actor.actor_name,
        actor.queue_name,
        span(budget.soft) if budget else "-",
        span(budget.hard) if budget else "-",
        ("actor" if actor.budget else "lane") if budget else "-",
        budget.because if budget else "",
        _place(app, actor.declared_at),
    )


def _bound(bound: Bound) -> str:
    rest = (
        f"the slowest janitor's pass {span(bound.janitor.total)} ({bound.janitor.entry}: "
        f"{span(bound.janitor.gap)} until it comes, {span(bound.janitor.takes)} to run)"
        if bound.janitor
        else f"{span(LOST_MARGIN)} (no janitor is scheduled; on_lost alone ends it)"
    )
    return (
        f"A job's row is terminal at the latest {span(bound.after_hard)} after its hard budget: "
        f"the lane's longest hard budget {span(bound.longest_hard)} + {rest}"
    )


def schedule_table(
    app: App, at: str | None, entries: Iterable[Entry] | None = None, paused: Mapping[str, Pause] | None = None
) -> Table:
    """Entries in order of their next slot; with `at` (HH:MM, each entry's own zone) those due at that minute.

    A paused entry is shown in yellow, with by whom and why in place of its own reason.
    """
    table = Table("next slot", "entry", "cron or interval", "expires", "lane", "soft/hard", "because", title="Schedule")
    rows = []
    for entry in app.schedule if entries is None else entries:
        after = clock.now() if at is None else _just_before(at, entry)
        slot = next_slot(entry, after)
        if slot is not None and (at is None or slot - after <= timedelta(minutes=1)):
            rows.append((slot, entry))
    for slot, entry in sorted(rows, key=lambda row: row[0]):
        actor = app.actor(entry.actor)
        lane = app.lane_of(actor.queue_name)
        budget = effective_budget(actor, lane) if lane else actor.budget
        note = (paused or {}).get(entry.name)
        table.add_row(
            f"{slot.astimezone(ZoneInfo(entry.tz)):%a %H:%M:%S}",
            entry.name,
            (entry.cron or f"every {span(entry.every)}") + (f" + {span(offset(entry))}" if entry.jitter else ""),
            span(entry.expires),
            lane.name if lane else "no lane",
            f"{span(budget.soft)}/{span(budget.hard)}" if budget else "-",
            Text(f"paused {told(note)}") if note else entry.because,
            style="yellow" if note else None,
        )
    return table


def told(note: Pause) -> str:
    """By whom an entry was paused, when and why."""
    return f"by {note.by} at {note.at:%Y-%m-%d %H:%M} UTC: {note.because}"


def ledger_table(broker: FleetBroker, entries: Iterable[Entry], most: int) -> Table:
    """What became of the slots of entries, and what people did to them; in each entry's own zone, latest last."""
    table = Table("written", "entry", "verdict", "slot", "to", "slots", "revision", "by", title="Ledger")
    lines = [
        (line, ZoneInfo(entry.tz))
        for entry in entries
        for line in ledger.read(broker.client, broker.namespace, entry.name, most)
    ]
    for line, zone in sorted(lines, key=lambda pair: pair[0].at):
        who = f"{line.by}: {line.because}" if line.because else line.by
        table.add_row(
            f"{line.at:%Y-%m-%d %H:%M:%S}",
            line.entry,
            line.verdict,
            f"{line.first.astimezone(zone):%Y-%m-%d %H:%M:%S}" if line.judges else "",
            f"{line.last.astimezone(zone):%Y-%m-%d %H:%M:%S}" if line.count > 1 else "",
            f"{line.count:,}" if line.judges else "",
            str(line.revision) if line.judges else "",
            Text(who if line.by else f"beat {line.token[:8]}, term {line.epoch}" if line.judges else ""),
            style=None if line.verdict == "fired" else "yellow" if line.judges else "cyan",
        )
    if not lines:
        table.caption = "nothing yet"
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
    return [lanes_table(app, broker, reports), beats_table(reports), running_table(reports, app)]


def lanes_table(app: App, broker: FleetBroker, reports: list[Report]) -> Table:
    """One row a queue: how many wait, are delayed, are held, died, and for how long the oldest due one has waited.

    `lag` is how late 95 of 100 jobs of the last minutes began at most, `in/out` how many came and ended a minute.
    """
    readings = {
        reading.queue: reading for reading in probe.read(broker, (q for lane in app.lanes for q in lane.queues))
    }
    head = ("lane", "workers", "queue", "waiting", "oldest", "lag", "in/out", "consumers", "delayed", "held")
    table = Table(*head, "dead letters", title="Lanes")
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
                "-" if reading.lag_p95 is None else fine_span(reading.lag_p95),
                f"{_rate(reading.rate_in)}/{_rate(reading.rate_out)}",
                "-" if reading.consumers is None else str(reading.consumers),
                str(reading.delayed),
                str(reading.in_flight),
                str(reading.dead),
            )
    return table


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"


def beats_table(reports: list[Report]) -> Table:
    """The beat replicas, and who leads."""
    table = Table("beat", "host", "pid", "", title="Beat")
    for report in (report for report in reports if report.kind == "beat"):
        table.add_row(
            (report.worker_id or "")[:8], report.host, str(report.pid), "leads" if report.leads else "follows"
        )
    return table


def running_table(reports: list[Report], app: App | None = None, most: int = 30) -> Table:
    """The jobs that run now and how much of their soft and hard budget is used: those over soft first, and in red.

    Whose budget it is, is told by the declarations of `app`.
    """
    table = Table("job", "lane", "phase", "runs for", "from", "host", "pid", "message", title="Running now")
    now = clock.real_now()
    jobs = [(job, report) for report in reports for job in report.jobs]
    for job, report in sorted(jobs, key=lambda pair: (not _over_soft(pair[0], now), pair[0].since))[:most]:
        table.add_row(
            # Plain: a message's actor and id can be anything, rich's markup too.
            Text(job.actor),
            report.name,
            job.phase,
            f"{span(now - job.since)} of {span(job.soft)}/{span(job.hard)}",
            _whose_budget(job, app),
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


def _whose_budget(job: Job, app: App | None) -> str:
    """`actor` or `lane` where the job runs in the declared budget, `message` where its sender asked for another.

    A sender's hard budget follows at the declared distance from its soft one; where that differs too, the process that
    runs the job has other declarations than these: `other code`.
    """
    actor = app.actors.get(job.actor) if app else None
    lane = app.lane_of(job.queue) if app else None
    declared = (actor.budget if actor else None) or (lane.budget if lane else None)
    if actor is None or declared is None or job.soft is None or job.hard is None:
        return "-"
    if not _same(job.hard - job.soft, declared.hard - declared.soft):
        return "other code"
    if not _same(job.soft, declared.soft):
        return "message"
    return "actor" if actor.budget else "lane"


def _same(one: timedelta, other: timedelta) -> bool:
    """As well as a board's floats tell."""
    return abs(one - other) < timedelta(milliseconds=1)
