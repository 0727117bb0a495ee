"""The live view: the night's clock, lanes and their queues, what runs, who leads."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from io import StringIO
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from books.calendar import BERLIN
from books.night.faults import Faults
from books.night.plan import EVENING, LENGTH
from fleet.app import App
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.slots import next_slot
from fleet.views import beats_table, lanes_table
from fleet.workers.presence import Report, present


def view(app: App, broker: FleetBroker, faults: Faults) -> RenderableType:
    """One picture of the fleet as it is now; four round trips to Redis."""
    reports, now = present(broker.client, broker.namespace), clock.now()
    passed = max(0.0, min(1.0, (now - EVENING) / LENGTH))
    head = Table.grid(padding=(0, 2), expand=True)
    head.add_row(
        f"[bold]{now.astimezone(BERLIN):%H:%M}[/]", ProgressBar(total=1.0, completed=passed), f"next: {_next(app, now)}"
    )
    beside = Table.grid(padding=(0, 2))
    beside.add_row(beats_table(reports), _running(reports))
    return Panel(Group(head, lanes_table(app, broker, reports), beside, _crashes(faults)), title="Nightshift")


def save_picture(seen: RenderableType, path: Path) -> None:
    """Write one picture as SVG."""
    console = Console(record=True, width=118, file=StringIO())
    console.print(seen)
    drawn = console.export_svg(title="make night")
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))  # fonts from the net; any will do


def _next(app: App, now: datetime) -> str:
    coming = [(slot, entry.name) for entry in app.schedule if (slot := next_slot(entry, now)) and not _busy(entry.cron)]
    if not coming:
        return "-"
    slot, name = min(coming)
    return f"{name} {slot.astimezone(BERLIN):%H:%M}"


def _busy(cron: str | None) -> bool:
    """Whether an entry comes so often that naming it as the next one says nothing."""
    return cron is None or cron.startswith("*")


def _running(reports: list[Report]) -> Table:
    table = Table("runs now", "jobs", title="Running now")
    counts = Counter(job.actor for report in reports for job in report.jobs)
    for actor, count in sorted(counts.items()):
        table.add_row(actor, str(count))
    return table


def _crashes(faults: Faults) -> str:
    lines = []
    if faults.crash:
        took = faults.crash.restarted_in
        back = (
            f"all running again after {took.total_seconds():.1f} s"
            if took
            else f"{len(faults.crash.waiting)} not back yet"
        )
        lines.append(f"killed worker {faults.crash.pid}, which held {len(faults.crash.held)} syncs: {back}")
    if faults.beat_killed:
        lines.append(f"killed the leading beat {faults.beat_killed[:8]}")
    return "\n".join(lines) or "no crash yet"
