"""`fleet outbox list|retry|discard`: the messages that wait for Redis, and those that could not be sent.

`discard` says what it would drop, and does it only with `--yes`. Both acts leave a row in the audit. The context's
object is what loads the application.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Engine

    from fleet.audit import Note
    from fleet.broker import FleetBroker

BecauseOption = Annotated[str, typer.Option("--because", help="Why, in words; it stands in the audit.")]
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
def retry(context: typer.Context, ids: IdsArgument, because: BecauseOption = "") -> None:
    """Have rows tried again now, and not only after their pause."""
    from fleet.standing import try_again

    where = _open(context)
    with _noting("outbox retry", ids, because) as note:
        note.after = f"{try_again(*where, ids):,} of {len(ids):,} are tried again in the relay's next pass"
    typer.echo(f"{note.after}.")


@cli.command("discard")
def discard_rows(
    context: typer.Context,
    ids: IdsArgument,
    because: BecauseOption = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be dropped.")] = False,
) -> None:
    """Drop rows that could not be sent, for good; a row that was never refused is left alone."""
    from fleet.standing import discard

    where = _open(context)
    if not yes:
        rows = discard(*where, ids, really=False)
        typer.echo(f"{len(rows):,} of {len(ids):,} would be dropped for good. Say --yes to do it.")
        return
    with _noting("outbox discard", ids, because) as note:
        rows = discard(*where, ids, really=True)
        note.before = "; ".join(f"{row.id} to {row.actor} on {row.queue}: {row.refused}" for row in rows)
        note.after = f"{len(rows):,} of {len(ids):,} dropped"
    typer.echo(f"{note.after}.")


def _noting(what: str, ids: Sequence[int], because: str) -> AbstractContextManager[Note]:
    from fleet import audit
    from fleet.app import process_broker

    rows = f"rows {', '.join(map(str, ids))}"
    return audit.noting(process_broker(), who=audit.own_user(), what=what, subject=rows, because=because)


def _open(context: typer.Context) -> tuple[Engine, FleetBroker]:
    from fleet.app import process_broker
    from fleet.servers import require_postgres
    from fleet.storage import database

    context.obj()
    require_postgres(database())
    return database(), process_broker()
