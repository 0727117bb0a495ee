"""`fleet balance`, and `on`, `off`, `hold`, `release`: what elastic entries may run and why, and a person's hand on it.

Each act stands in the audit with its reason. The context's object is what loads the application.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from fleet import allowance, audit, balance_by_hand
from fleet.app import App, process_broker
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.errors import DeclarationInvalid
from fleet.reasons import reason_says_something

if TYPE_CHECKING:
    from rich.table import Table

EntryArgument = Annotated[str, typer.Argument(metavar="ENTRY", help="An elastic entry, as `fleet balance` shows it.")]
UntilArgument = Annotated[str, typer.Argument(metavar="UNTIL", help="HH:MM in the entry's zone, of this night.")]
BecauseOption = Annotated[str, typer.Option("--because", help="Why, in words; it stands in the audit.")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who; without, this user on this host.")]

cli = typer.Typer(help="Elastic entries: what they may run, and why; on, off, hold, release.")


@cli.callback(invoke_without_command=True)
def balance(context: typer.Context) -> None:
    """What each elastic entry may run now, what of it runs, and why."""
    if context.invoked_subcommand is not None:
        return
    from rich.console import Console

    app = _open(context)
    off = allowance.switched_off(process_broker())
    console = Console()
    (console if console.is_terminal else Console(width=180)).print(_table(app))
    if off is not None:
        typer.echo(f"The balancer is off, by {off.by} since {off.at:%Y-%m-%d %H:%M} UTC: {off.because}")


@cli.command()
def on(context: typer.Context, because: BecauseOption, by: ByOption = None) -> None:
    """Have the balancer decide again, from the next minute on."""
    before = _switched(context, True, because, by)
    if before is None:
        typer.echo("The balancer was not off.")
        raise typer.Exit(1)
    typer.echo(f"The balancer decides again within a minute; it was off by {before.by}: {before.because}")


@cli.command()
def off(context: typer.Context, because: BecauseOption, by: ByOption = None) -> None:
    """Let every elastic entry run as its cron slot says, at once, until `fleet balance on`."""
    before = _switched(context, False, because, by)
    was = f"; it was off before, by {before.by}: {before.because}" if before else ""
    typer.echo(f"The balancer is off: cron slots stand{was}. Nothing that runs is cut off.")


@cli.command()
def hold(
    context: typer.Context, entry: EntryArgument, until: UntilArgument, because: BecauseOption, by: ByOption = None
) -> None:
    """Let no chain of an entry begin another chunk until a time: to its deadline, or behind it to its night's end."""
    declared = _entry(context, entry, because)
    who = by or audit.own_user()
    ends = _instant(declared, until)
    after = f"held until {ends:%Y-%m-%d %H:%M} UTC"
    with audit.noting(process_broker(), who=who, what="hold", subject=entry, because=because) as note:
        before = balance_by_hand.hold(process_broker(), declared, ends, by=who, because=because)
        was = f"held until {before.until:%H:%M} UTC by {before.by}" if before else "not held"
        note.before, note.after = was, after
    typer.echo(f"{entry} is {after}; chunks that run end by themselves. `fleet balance release {entry}` ends the hold.")


@cli.command()
def release(context: typer.Context, entry: EntryArgument, because: BecauseOption, by: ByOption = None) -> None:
    """End a hold: the balancer begins again, cautiously, with the next minute."""
    declared = _entry(context, entry, because)
    who = by or audit.own_user()
    with audit.noting(process_broker(), who=who, what="release", subject=entry, because=because) as note:
        before = balance_by_hand.release(process_broker(), declared, by=who, because=because)
        if before is None:
            typer.echo(f"{entry} was not held.")
            raise typer.Exit(1)
        was = f"held until {before.until:%H:%M} UTC by {before.by}: {before.because}"
        note.before, note.after = was, "released"
    typer.echo(f"{entry} is released; it was {was}.")


def _open(context: typer.Context) -> App:
    from fleet.servers import require_broker

    app: App = context.obj()
    require_broker(process_broker(), "console")
    return app


def _entry(context: typer.Context, name: str, because: str) -> Entry:
    app = _open(context)
    declared = allowance.elastic_entry(app.schedule, name)
    _require(because)
    return declared


def _require(because: str) -> None:
    if not reason_says_something(because):
        raise DeclarationInvalid(f"--because {because!r}: say it in a few words, for whoever reads the audit next.")


def _switched(context: typer.Context, on: bool, because: str, by: str | None) -> allowance.Off | None:
    app = _open(context)
    _require(because)
    entries = [entry for entry in app.schedule if entry.elastic is not None]
    who, after = by or audit.own_user(), "on" if on else "off"
    with audit.noting(process_broker(), who=who, what="balance", subject=after, because=because) as note:
        before = balance_by_hand.switch(process_broker(), on, entries, by=who, because=because)
        note.before, note.after = "off" if before else "on", after
    return before


def _instant(entry: Entry, until: str) -> datetime:
    """The next time that the clock of the entry's zone shows it."""
    if not re.fullmatch(r"\d{1,2}:\d{2}", until):
        raise DeclarationInvalid(f"UNTIL {until!r}: give a time of day in {entry.tz}, HH:MM.")
    hour, _, minute = until.partition(":")
    try:
        wall = time(int(hour), int(minute))
    except ValueError:
        raise DeclarationInvalid(f"UNTIL {until!r}: there is no such time of day; give HH:MM.") from None
    zone, now = ZoneInfo(entry.tz), clock.now()
    today = now.astimezone(zone).date()
    days = (datetime.combine(today + timedelta(days=by), wall, zone) for by in (0, 1))
    return next(instant for instant in days if instant > now).astimezone(UTC)


def _table(app: App) -> Table:
    from rich.table import Table

    from fleet.chains import living

    broker, now = process_broker(), clock.now()
    table = Table("entry", "may run", "chains", "of", "reason", "left", "last decision", title="Elastic entries")
    for entry, granted in allowance.allowances(broker, [entry for entry in app.schedule if entry.elastic], now):
        last = allowance.decisions(broker, entry.name, now)[-1:]
        zone = ZoneInfo(entry.tz)
        said = f"{last[0].at.astimezone(zone):%H:%M} {last[0].text}" if last else "-"
        table.add_row(
            entry.name,
            f"{granted.places}{' (cron slot)' if granted.fallback else ''}",
            str(len(living(broker, entry))),
            str(entry.elastic.cap if entry.elastic else 0),
            granted.reason,
            "-" if granted.backlog is None else f"{granted.backlog:,}",
            said,
        )
    return table
