"""`python -m books.night`: plays one compressed night, prints its report, and exits 1 if anything is red.

With `--real-clock` it is the same fleet on the real clock, with the sandbox as its world, until Ctrl-C.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from books.night.plan import BACKLOG, EVALS, SUBMISSIONS, Plan
from fleet.errors import FleetError


def main(
    seconds: Annotated[float, typer.Option(min=20, help="Real seconds for the eight hours.")] = 120,
    seed: Annotated[int, typer.Option(envvar="NIGHT_SEED", help="What the night is drawn from.")] = 1,
    folder: Annotated[Path, typer.Option(help="Where servers, files and logs live; emptied first.")] = Path(".night"),
    json: Annotated[Path | None, typer.Option("--json", help="Write the report to this file, too.")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Write the live view of the busiest minutes to this SVG.")
    ] = None,
    balance: Annotated[
        bool, typer.Option(help="Have the balancer decide; without it elastic work begins at its cron minutes.")
    ] = True,
    crashes: Annotated[bool, typer.Option(help="Kill a worker, twice, and the leading beat.")] = True,
    backlog: Annotated[int, typer.Option(min=1, help="Documents that nobody waits for.")] = BACKLOG,
    submissions: Annotated[int, typer.Option(min=1, help="What people have handed in.")] = SUBMISSIONS,
    evals: Annotated[int, typer.Option(min=1, help="Questions that are to be asked again.")] = EVALS,
    real_clock: Annotated[
        bool, typer.Option("--real-clock", help="Run until Ctrl-C instead, on the real clock.")
    ] = False,
) -> None:
    """Play one night of the bookkeeping on real servers."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    if real_clock:
        from books.night.stay import stay

        stay(folder.resolve(), seed=seed, console=console)
        return
    from books.night.play import play

    plan = Plan(seconds, seed, folder.resolve(), balance, crashes, backlog, submissions, evals)
    report = play(plan, console, picture)
    console.print(report.table())
    if json is not None:
        report.write(json)
    if report.red:
        console.print(
            f"[bold red]Red: {len(report.red)} of {len(report.lines)} lines.[/] Logs: {folder.resolve() / 'logs'}"
        )
    else:
        console.print("[green]Nothing lost, nothing doubled, nothing stuck.[/]")
    raise SystemExit(report.exit_status)


if __name__ == "__main__":
    try:
        typer.run(main)
    except FleetError as error:
        print(f"night: {error}", file=sys.stderr)
        raise SystemExit(2) from None
