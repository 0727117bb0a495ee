"""`fleet outbox list|retry|discard`: the messages that wait for Redis, and those that could not be sent.

`discard` says what it would drop, and does it only with `--yes`. The context's object is what loads the application.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from fleet.broker import FleetBroker

IdsArgument = Annotated[list[int], typer.Argument(help="Rows, by the ids that `list` prints.")]

cli = typer.Typer(help="The outbox: list, retry, discard.", no_args_is_help=True)


@cli.command("list")
def list_rows(
    context: typer.Context,
    refused: Annotated[bool, typer.Option("--refused", help="Only what could not be sent.")] = False,
    most: Annotated[int, typer.Option(min=1, help="At most so many rows, oldest first.")] = 50,
) -> None:
    """One line a row that waits, oldest first, with the reason of what could not be sent."""
    from rich.console import Console
    from rich.table import Table

    from fleet.standing import standing, waiting

    where = _open(context)
    stands, found = standing(*where), waiting(*where, refused=refused, most=most)
    title = "nothing waits"
    if stands.waiting:
        oldest = str(stands.oldest).split(".")[0]
        title = f"{len(found):,} of {stands.waiting:,} that wait; {stands.refused:,} could not be sent; oldest {oldest}"
    table = Table("id", "written", "queue", "actor", "attempts", "reason", title=title)
    for row in found:
        written = f"{row.written_at:%Y-%m-%d %H:%M:%S}"
        table.add_row(str(row.id), written, row.queue, row.actor, str(row.attempts), row.refused or "-")
    console = Console()
    (console if console.is_terminal else Console(width=180)).print(table)


@cli.command()
def retry(context: typer.Context, ids: IdsArgument) -> None:
    """Have rows tried again now, and not only after their pause."""
    from fleet.standing import try_again

    typer.echo(f"{try_again(*_open(context), ids):,} of {len(ids):,} are tried again in the relay's next pass.")


@cli.command("discard")
def discard_rows(
    context: typer.Context,
    ids: IdsArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be dropped.")] = False,
) -> None:
    """Drop rows that could not be sent, for good; a row that was never refused is left alone."""
    from fleet.standing import discard

    rows = discard(*_open(context), ids, really=yes)
    said = "dropped." if yes else "would be dropped for good. Say --yes to do it."
    typer.echo(f"{rows:,} of {len(ids):,} {said}")


def _open(context: typer.Context) -> tuple[Engine, FleetBroker]:
    from fleet.app import process_broker
    from fleet.servers import require_postgres
    from fleet.storage import database

    context.obj()
    require_postgres(database())
    return database(), process_broker()
