"""`python -m books.review`: what left the house and nobody can tell whether it arrived; list it, ask, decide.

Reads the same settings as the fleet. What each command does is in `books.outside.reviewing`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fleet import app as application
from fleet.errors import FleetError

ROOT = Path(__file__).parents[1]
Id = Annotated[int, typer.Argument(metavar="ID", help="As `list` shows it.")]

cli = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Things of which nobody can tell whether they arrived."
)


@cli.command("list")
def show() -> None:
    """Show what waits for a person: id, kind, what for, its key at the other side, since when, and why."""
    from books.outside import reviewing

    effects = reviewing.parked()
    for effect in effects:
        since = f"{effect.finished_at:%Y-%m-%d %H:%M} UTC" if effect.finished_at else "?"
        print(f"{effect.id}  {effect.kind} of {effect.subject}  key {effect.key}  since {since}\n    {effect.outcome}")
    print(f"{len(effects)} need review.")


@cli.command()
def ask() -> None:
    """Ask the other side about each, and settle those it knows of. Sends nothing."""
    from books.outside import reviewing

    for effect in reviewing.parked():
        print(f"{effect.id}  {effect.kind} of {effect.subject}: {reviewing.ask(effect)}")


@cli.command()
def done(effect_id: Id) -> None:
    """Say that you found it at the other side: it is done."""
    from books.outside import reviewing

    reviewing.done(effect_id)
    print(f"{effect_id} is done.")


@cli.command()
def again(effect_id: Id) -> None:
    """Say that it is not there: it is sent again. Where the other side can be asked, it is asked first."""
    from books.outside import reviewing

    application.load(ROOT)
    print(f"{effect_id}: {reviewing.again(effect_id)}")


if __name__ == "__main__":
    try:
        cli()
    except FleetError as error:
        print(f"review: {error}", file=sys.stderr)
        raise SystemExit(1) from None
