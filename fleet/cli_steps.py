"""`fleet steps`: how long model and tool calls took, by actor and by what was called.

The context's object is what loads the application.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.errors import DeclarationInvalid

if TYPE_CHECKING:
    from fleet.steps import Called

_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


def add_to(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(steps)


def steps(
    context: typer.Context,
    window: Annotated[str, typer.Option(help="What ended within the last 7d, 12h, 30m, …")] = "7d",
) -> None:
    """How long model and tool calls took, by actor and by model or tool, from the application's record of steps."""
    from fleet.servers import require_postgres
    from fleet.steps import by_called
    from fleet.storage import database

    context.obj()
    since = _window(window)
    require_postgres(database())
    with database().connect() as connection:
        _show(by_called(connection, since), window)


def _window(written: str) -> timedelta:
    found = re.fullmatch(r"([1-9]\d{0,4})([dhm])", written.strip())
    if found is None:
        raise DeclarationInvalid(f"--window {written!r}: give days, hours or minutes, for example 7d, 12h or 30m.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _show(found: Sequence[Called], window: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from fleet.views import fine_span

    table = Table("actor", "kind", "called", title=f"Steps of the last {window}")
    for column in ("count", "median", "p95", "p99", "max"):
        table.add_column(column, justify="right")
    for calls in found:
        times = (fine_span(time) for time in (calls.median, calls.p95, calls.p99, calls.longest))
        names = (Text(name or "-") for name in (calls.actor, calls.kind, calls.called))  # plain, and no markup
        table.add_row(*names, f"{calls.count:,}", *times)
    if not found:
        table.caption = "none"
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table)
