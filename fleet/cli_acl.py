"""`fleet acl ROLE`: the ACL user of a role on Redis, as the command that makes it; needs no server.

The line is for this application's queues, entries and namespace. No password is taken or printed: `PASSWORD` stands in
its place. The context's object is what loads the application.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fleet.app import process_broker
from fleet.broker.grants import ROLES
from fleet.broker.roles import acl_line, own_of


class RoleName(StrEnum):
    """The roles, as an argument."""

    producer = "producer"
    worker = "worker"
    beat = "beat"
    console = "console"
    doctor = "doctor"


def add_to(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(acl)


def acl(
    context: typer.Context,
    role: Annotated[RoleName, typer.Argument(help="Who is to connect: what a process of that role does, and no more.")],
    user: Annotated[str | None, typer.Option(help="The user's name; without, fleet-ROLE.")] = None,
) -> None:
    """Print the command that makes the ACL user of a role on Redis, or brings it up to this release."""
    context.obj()
    known = next(one for one in ROLES if one == role.value)
    typer.echo(acl_line(known, own_of(process_broker()), user or f"fleet-{known}"))
