"""`fleet schedule|fire|pause|resume`: what runs when, what became of it, and a person's hand on it.

The context's object is what loads the application.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Annotated

import redis
import typer
from rich.console import Console

from fleet import audit, by_hand, views
from fleet.app import App, process_broker, settings
from fleet.declarations import Entry
from fleet.errors import DeclarationInvalid, FleetError
from fleet.reasons import reason_says_something
from fleet.servers import require_broker

EntryArgument = Annotated[str, typer.Argument(metavar="ENTRY", help="The entry's name, as `fleet schedule` shows it.")]
BecauseOption = Annotated[str, typer.Option("--because", help="Why, in words; it stands in the entry's ledger.")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who; without, this user on this host.")]


def add_to(cli: typer.Typer) -> None:
    """Add the four commands."""
    for command in (schedule, fire, pause, resume):
        cli.command()(command)


def schedule(
    context: typer.Context,
    entry: Annotated[str | None, typer.Argument(metavar="[ENTRY]", help="Only this entry.")] = None,
    at: Annotated[
        str | None, typer.Option(help="HH:MM: only what has a slot at that minute, or the next ones after it.")
    ] = None,
    ledger: Annotated[bool, typer.Option("--ledger", help="What became of the slots, latest last.")] = False,
    most: Annotated[int, typer.Option(min=1, help="With --ledger: at most so many lines an entry.")] = 20,
) -> None:
    """What runs when, in order of time; which entries are paused; with --ledger what became of their slots."""
    app: App = context.obj()
    chosen = app.schedule if entry is None else (app.entry(entry),)
    if ledger:
        _require_redis()
        _print(views.ledger_table(process_broker(), chosen, most))
        return
    paused, caption = _paused()
    table = views.schedule_table(app, at, chosen, paused)
    table.caption = caption
    _print(table)


def fire(context: typer.Context, entry: EntryArgument, because: BecauseOption = "", by: ByOption = None) -> None:
    """Send an entry's message now, beside its slots; a paused entry's too."""
    app: App = context.obj()
    declared = app.entry(entry)
    _require_redis()
    try:
        with _noting("fire", entry, by, because) as note:
            message = by_hand.fire_now(app, process_broker(), declared, by=by or audit.own_user(), because=because)
            note.after = message
    except redis.RedisError as error:
        raise FleetError(
            f"Redis did not confirm it: {error}. Look with `fleet schedule --ledger {entry}` whether it was sent."
        ) from None
    typer.echo(f"{entry} is sent to the queue {app.actor(declared.actor).queue_name}: message {message}")
    if standing := by_hand.paused(process_broker().client, process_broker().namespace).get(entry):
        typer.echo(f"Its slots stay paused ({views.told(standing)}).")


def pause(context: typer.Context, entry: EntryArgument, because: BecauseOption, by: ByOption = None) -> None:
    """Let no slot of an entry fire, nor a chain of it go on, until it is resumed; slots meanwhile end as `paused`."""
    declared = _entry(context, entry, because)
    with _noting("pause", entry, by, because) as note:
        before = by_hand.pause(process_broker(), declared.name, by=by or audit.own_user(), because=because)
        note.before, note.after = f"paused {views.told(before)}" if before else "not paused", "paused"
    was = f"; it was paused before ({views.told(before)})" if before else ""
    typer.echo(f"{entry} is paused{was}. `fleet resume {entry}` lets its slots fire again.")


def resume(context: typer.Context, entry: EntryArgument, because: BecauseOption, by: ByOption = None) -> None:
    """Let an entry's slots fire again, from the next one on."""
    declared = _entry(context, entry, because)
    with _noting("resume", entry, by, because) as note:
        before = by_hand.resume(process_broker(), declared.name, by=by or audit.own_user(), because=because)
        if before is None:
            typer.echo(f"{entry} was not paused.")
            raise typer.Exit(1)
        note.before, note.after = f"paused {views.told(before)}", "fires"
    typer.echo(f"{entry} is resumed; it was paused {views.told(before)}.")


def _entry(context: typer.Context, name: str, because: str) -> Entry:
    app: App = context.obj()
    declared = app.entry(name)
    if not reason_says_something(because):
        raise DeclarationInvalid(f"--because {because!r}: say it in a few words, for whoever reads the ledger next.")
    _require_redis()
    return declared


def _noting(what: str, entry: str, by: str | None, because: str) -> AbstractContextManager[audit.Note]:
    return audit.noting(process_broker(), who=by or audit.own_user(), what=what, subject=entry, because=because)


def _require_redis() -> None:
    require_broker(process_broker(), "console")


def _paused() -> tuple[dict[str, by_hand.Pause], str | None]:
    """The paused entries, and what to say where they cannot be known."""
    if not settings().redis_url:
        return {}, None
    try:
        return by_hand.paused(process_broker().client, process_broker().namespace), None
    except redis.RedisError as error:
        return {}, f"Redis did not say which entries are paused: {error}"


def _print(table: object) -> None:
    console = Console()
    (console if console.is_terminal else Console(width=180)).print(table)
