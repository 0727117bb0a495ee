"""`fleet janitor list | run`: the janitors from the command line, for a person who does not want to wait for a slot.

`run --dry-run` measures and shows what a pass would do, and changes nothing. `run` is a pass like any other, in this
process; one that the schedule sends meanwhile does no harm, since janitors may run twice at once.

The context's object is what loads the application. Exit code 1 when something failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.table import Table

from fleet import audit, janitor
from fleet.app import App, janitors, process_broker
from fleet.errors import DeclarationInvalid, NotDeclared
from fleet.janitor import Chore

_SHOWN = 1_000

cli = typer.Typer(help="The janitors: list them, run one now, or see what it would do.", no_args_is_help=True)


@cli.command("list")
def list_janitors(context: typer.Context) -> None:
    """Every janitor, what it does, when it runs, and where the runbook tells of it."""
    app: App = context.obj()
    table = Table("janitor", "what it does", "runs", "runbook", title="Janitors")
    for name, module in janitors(app).items():
        entries = [entry for entry in app.schedule if entry.actor == name]
        runs = ", ".join(entry.cron or f"every {entry.every}" for entry in entries) or "never: it has no entry"
        table.add_row(name, (module.__doc__ or "-").strip().splitlines()[0], runs, janitor.runbook(name))
    _print(table)


@cli.command()
def run(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Which janitor.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would do.")] = False,
    because: Annotated[str, typer.Option("--because", help="Why, in words; it stands in the audit.")] = "",
) -> None:
    """One pass, now and here; its line goes to the log, as always."""
    chores = _chores(context.obj(), name)
    if dry_run:
        _show(name, chores)
        return
    acts = audit.noting(process_broker(), who=audit.own_user(), what="janitor run", subject=name, because=because)
    with acts as note:
        note.after = "it began"  # a pass that is interrupted has mended some
        done = janitor.run(name, chores)
        note.after = said = f"{done.verdict}; {done.recovered:,} of {done.stuck:,} recovered, {done.failed:,} failed"
    typer.echo(f"{name}: {said}.")
    if done.verdict == "failed":
        raise typer.Exit(1)


def _chores(app: App, name: str) -> Sequence[Chore]:
    known = janitors(app)
    if name not in known:
        raise NotDeclared("janitor", name, known)
    chores = getattr(known[name], "chores", None)
    if chores is None:
        raise DeclarationInvalid(
            f"{known[name].__file__} has no chores(): give it one that returns what the janitor looks after."
        )
    return cast("Sequence[Chore]", chores())


def _show(name: str, chores: Sequence[Chore]) -> None:
    seen, found = janitor.preview(chores)
    rows = list(islice(found, _SHOWN + 1))
    table = Table("what", "stuck for", "would be", title=f"{name}: a dry run, nothing is changed")
    for stuck in rows[:_SHOWN]:
        table.add_row(stuck.subject, janitor.age(stuck.age), stuck.plan)
    _print(table)
    more = f" The first {_SHOWN:,} are shown." if len(rows) > _SHOWN else ""
    typer.echo(
        f"scanned={seen.scanned} stuck={seen.stuck} skipped_live={seen.skipped_live} "
        f"oldest={janitor.age(seen.oldest)}. Nothing was changed.{more}"
    )


def _print(table: Table) -> None:
    console = Console()
    (console if console.is_terminal else Console(width=180)).print(table)
