"""`python -m books.uploads`: imports and batches that failed; show them, and have one go on where it stopped.

Rows that are in the books, and files that were read, are kept and not done again. A file that is no CSV fails again:
it is for its owner to export anew.

Reads the same settings as the fleet.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from sqlalchemy import func, select, update

from books.models import BatchStatus, ImportJob, ImportStatus, UploadBatch
from fleet import app as application
from fleet.actor import FleetActor
from fleet.errors import FleetError
from fleet.storage import session

ROOT = Path(__file__).parents[1]


class What(StrEnum):
    IMPORT = "import"
    BATCH = "batch"


class NotFailed(FleetError):
    """Raised when a person has something go on that has not failed; says what it is instead."""


_WHERE: dict[What, tuple[type[ImportJob | UploadBatch], str, str, str]] = {
    What.IMPORT: (ImportJob, ImportStatus.FAILED, ImportStatus.QUEUED, "import_csv"),
    What.BATCH: (UploadBatch, BatchStatus.FAILED, BatchStatus.QUEUED, "extract_batch"),
}


def failed(what: What) -> Sequence[tuple[int, str | None]]:
    """Ids and outcomes of those that failed, oldest first."""
    model, failed, _, _ = _WHERE[what]
    with session() as s:
        rows = s.execute(select(model.id, model.outcome).where(model.status == failed).order_by(model.id))
        return [(row_id, outcome) for row_id, outcome in rows]


def go_on(what: What, row_id: int) -> None:
    """Have one that failed go on: it is queued, and its message goes out with that commit.

    Raises `NotFailed`.
    """
    model, failed, queued, name = _WHERE[what]
    again = {"status": queued, "outcome": "goes on: a person had it", "attempts": 0, "finished_at": None}
    ours = update(model).where(model.id == row_id, model.status == failed).returning(model.id)
    with session() as s:
        if s.scalars(ours.values(**again, queued_at=func.now())).one_or_none() is None:
            status = s.scalar(select(model.status).where(model.id == row_id))
            found = "does not exist" if status is None else f"is {status}"
            raise NotFailed(f"{what} {row_id} {found}, and only one that failed goes on; `list` shows those.")
        actor = cast("FleetActor[Any, Any]", application.process_broker().get_actor(name))
        actor.send_on_commit(s, row_id)


cli = typer.Typer(no_args_is_help=True, add_completion=False, help="Imports and batches that failed.")


@cli.command("list")
def show() -> None:
    """Show what failed: id, and why."""
    for what in What:
        for row_id, outcome in failed(what):
            print(f"{what} {row_id}  {outcome}")


@cli.command("go-on")
def continued(what: What, row_id: Annotated[int, typer.Argument(metavar="ID", help="As `list` shows it.")]) -> None:
    """Have one go on behind what it did."""
    application.load(ROOT)
    go_on(what, row_id)
    print(f"{what} {row_id} goes on.")


if __name__ == "__main__":
    try:
        cli()
    except FleetError as error:
        print(f"uploads: {error}", file=sys.stderr)
        raise SystemExit(1) from None
