"""`fleet doctor`: what is wrong with the servers, a line each; exit 1 if anything must be mended.

The context's object is what loads the application.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer


def add_to(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(doctor)


def doctor(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="The findings as one JSON object.")] = False,
) -> None:
    """What is wrong with Redis, PostgreSQL, this host and what the fleet keeps there; changes nothing.

    Exit 1 on a problem, 0 with warnings alone.
    """
    from fleet.app import process_broker, settings
    from fleet.doctor import examine

    found = list(examine(context.obj(), process_broker(), settings()))
    problems, warnings = (sum(one.kind == kind for one in found) for kind in ("problem", "warning"))
    if as_json:
        typer.echo(json.dumps({"problems": problems, "warnings": warnings, "findings": [asdict(one) for one in found]}))
    else:
        for one in found:
            typer.echo(one.line())
        typer.echo(f"{problems} problems, {warnings} warnings.")
    if problems:
        raise typer.Exit(1)
