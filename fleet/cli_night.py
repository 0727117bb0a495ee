"""`fleet night|night-plan|explain`: the night so far, the night as planned, and why something waits.

The context's object is what loads the application.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import redis
import typer

from fleet.app import App, process_broker, settings
from fleet.clock import clock
from fleet.errors import DeclarationInvalid
from fleet.servers import require_broker

if TYPE_CHECKING:
    from fleet.explain import Explanation
    from fleet.timeline import Timeline

SvgOption = Annotated[
    Path | None,
    typer.Option("--svg", metavar="FILE", help="Draw it into this file (`-` prints it), and print no text."),
]
TextOption = Annotated[bool, typer.Option("--text", help="With --svg: print the text too.")]
_WIDTH = 1_280


def add_to(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command()(night)
    cli.command("night-plan")(night_plan)
    cli.command()(explain)


def night(context: typer.Context, svg: SvgOption = None, text: TextOption = False) -> None:
    """The night from noon to noon, a row a lane: what ran, waited, was held or expired until now; what is to come."""
    from fleet.night_plan import tonight

    app: App = context.obj()
    require_broker(process_broker(), "console")
    _show(tonight(app, process_broker()), svg, text)


def night_plan(
    context: typer.Context,
    day: Annotated[
        str | None, typer.Option("--date", metavar="YYYY-MM-DD", help="The day at whose noon the night begins.")
    ] = None,
    svg: SvgOption = None,
    text: TextOption = False,
) -> None:
    """The coming night as planned, by what runs took before; heavy work that would collide stands out."""
    from fleet.night_plan import coming, plan

    app: App = context.obj()
    begins = coming(app, clock.now()) if day is None else _day(day)
    broker = process_broker() if settings().redis_url else None
    try:
        planned = plan(app, broker, begins)
    except redis.RedisError as error:
        typer.echo(f"Redis does not say how long runs took, so declared budgets stand in: {error}", err=True)
        planned = plan(app, None, begins)
    _show(planned, svg, text)


def explain(
    context: typer.Context,
    wanted: Annotated[
        str, typer.Argument(metavar="MESSAGE|RUN|ENTRY|LANE", help="An id or a name; a run also as KIND/ID.")
    ],
) -> None:
    """Why is this waiting, and what happens next: in at most ten lines. A name that means several is told as each."""
    app: App = context.obj()
    require_broker(process_broker(), "console")
    for one in _explained(app, wanted):
        typer.echo(f"{one.kind} {one.name}")
        for line in one.lines:
            typer.echo(f"  {line}")


def _explained(app: App, wanted: str) -> list[Explanation]:
    from sqlalchemy.exc import SQLAlchemyError

    from fleet import storage
    from fleet.explain import explain as explained

    try:
        return explained(app, process_broker(), wanted, storage.database() if settings().database_url else None)
    except SQLAlchemyError as error:
        why = str(getattr(error, "orig", None) or error).splitlines()[0]
        typer.echo(f"Runs could not be looked for, in PostgreSQL: {why}", err=True)
        return explained(app, process_broker(), wanted)


def _day(written: str) -> date:
    try:
        return date.fromisoformat(written)
    except ValueError:
        raise DeclarationInvalid(f"--date {written!r}: give a day as YYYY-MM-DD, for example 2026-03-02.") from None


def _show(timeline: Timeline, file: Path | None, also_text: bool) -> None:
    from rich.console import Console

    from fleet.timeline import svg
    from fleet.timeline import text as printed

    if file is not None and str(file) == "-":
        typer.echo(svg(timeline, width=_WIDTH))
    elif file is not None:
        file.write_text(svg(timeline, width=_WIDTH) + "\n")
        typer.echo(f"{file} is drawn: {timeline.title}.", err=True)
    if file is None or also_text:
        console = Console()
        console = console if console.is_terminal else Console(width=120)
        console.print(printed(timeline, console.width))
