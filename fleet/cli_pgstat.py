"""`fleet pgstat`: how busy tables of PostgreSQL are now, as rates between two readings of its own counters.

The context's object is what loads the application.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fleet.pgstat import Rates


def add_to(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(pgstat)


def pgstat(
    context: typer.Context,
    tables: Annotated[list[str], typer.Argument(metavar="TABLE...", help="Names, as TABLE or SCHEMA.TABLE.")],
    every: Annotated[float, typer.Option(min=1, help="Seconds between the two readings.")] = 10,
) -> None:
    """How busy tables are: scans, rows and changes a second, by PostgreSQL's counters between two readings."""
    from fleet.pgstat import rates, read_now
    from fleet.servers import require_postgres
    from fleet.storage import database

    context.obj()
    require_postgres(database())
    first = read_now(database(), tables)
    time.sleep(every)
    _show(rates(first, read_now(database(), tables)), every)


def _show(found: dict[str, Rates], every: float) -> None:
    from rich.console import Console
    from rich.table import Table

    from fleet.pgstat import COUNTED

    table = Table("table", *COUNTED, "rows", "dead rows", title=f"A second, over {every:g} s")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, seen in found.items():
        told = ("reset" if rate is None else _rate(rate) for rate in seen.each_second)
        table.add_row(name, *told, f"{seen.live:,}", f"{seen.dead:,}")
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table)


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
