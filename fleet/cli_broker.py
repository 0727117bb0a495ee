"""`fleet broker export-delayed`: what is needed once, on the way back to stock Dramatiq.

Shows first what it would touch, and does it only with `--yes`. The context's object is what loads the application.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from fleet.app import App, process_broker
from fleet.broker.broker import FleetBroker
from fleet.broker.export import Exported, delayed, export, require_nobody_serves, serving
from fleet.errors import NotDeclared
from fleet.servers import require_redis
from fleet.workers.presence import present

cli = typer.Typer(help="The broker's own errands.", no_args_is_help=True)


@cli.callback()
def options() -> None:
    """The broker's own errands."""


@cli.command("export-delayed")
def export_delayed(
    context: typer.Context,
    queue: Annotated[str | None, typer.Option("--queue", help="Only this queue.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would move.")] = False,
) -> None:
    """Hand delayed messages to stock Dramatiq's delay queues, for stock workers to take over."""
    app: App = context.obj()
    broker = process_broker()
    require_redis(broker.client)
    known = [name for lane in app.lanes for name in lane.queues]
    if queue is not None and queue not in known:
        raise NotDeclared("queue", queue, known)
    counts = delayed(broker, known if queue is None else [queue])
    if not yes:
        _say_what_would_move(broker, counts)
        return
    require_nobody_serves(broker, list(counts), called=_names(broker))
    for name in counts:
        became = Exported()
        try:
            for chunk in export(broker, name):
                became += chunk
        finally:
            typer.echo(_told(name, became))


def _say_what_would_move(broker: FleetBroker, counts: dict[str, int]) -> None:
    for name, waiting in counts.items():
        typer.echo(f"{name}: {waiting:,} delayed")
    called = _names(broker)
    for worker, served in serving(broker, list(counts)).items():
        typer.echo(f"{called(worker)} is on record for {', '.join(served)}: it must be stopped first.")
    typer.echo(f"{sum(counts.values()):,} messages would move to stock's delay queues. Say --yes to do it.")


def _names(broker: FleetBroker) -> Callable[[str], str]:
    """What to call a worker of an id: with its process and host where it reports them."""
    reports = {report.worker_id: report for report in present(broker.client, broker.namespace)}

    def called(worker: str) -> str:
        report = reports.get(worker)
        return f"worker {worker}" + (f" (lane {report.name}, pid {report.pid} on {report.host})" if report else "")

    return called


def _told(queue: str, became: Exported) -> str:
    told = f"{queue}: {became.moved:,} moved to stock's delay queue"
    if became.unreadable:
        told += f"; {became.unreadable:,} cannot be read and stay delayed"
    if became.changed:
        told += f"; {became.changed:,} changed meanwhile and stay delayed, run it again"
    return told + "."
