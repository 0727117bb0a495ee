"""The command line: `fleet --app DIR COMMAND`. Each command is thin; the work stands in the module it names.

An error of the engine is one sentence on standard error and exit code 2, no traceback.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet import app as application
from fleet import (
    cli_acl,
    cli_balance,
    cli_beat,
    cli_broker,
    cli_console,
    cli_dead,
    cli_doctor,
    cli_janitor,
    cli_night,
    cli_outbox,
    cli_pgstat,
    cli_steps,
)
from fleet.errors import FleetError

if TYPE_CHECKING:
    from fleet.settings import Settings

cli = typer.Typer(
    help="Nightshift: a worker fleet for the night.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_root = Path(".")


@cli.callback()
def options(
    context: typer.Context,
    app: Annotated[
        Path, typer.Option("--app", help="The application's root: the folder that holds actors/ and config/.")
    ] = Path("."),
) -> None:
    """Nightshift: a worker fleet for the night."""
    global _root
    _root = app
    context.obj = _start  # for the groups of commands that stand in modules of their own


def _start(*, follow_parent: bool = False) -> application.App:
    """Load the application and set this process's logs and clock."""
    app = application.load(_root)
    _configure(application.settings(), follow_parent=follow_parent)
    return app


def _configure(configured: Settings, *, follow_parent: bool) -> None:
    from fleet import clock, logs
    from fleet.workers.parent import follow

    if follow_parent:
        follow(configured.parent)
    logs.configure(configured.log_format, configured.log_level)
    clock.configure(configured)


@cli.command()
def up(
    beats: Annotated[int, typer.Option(min=1, help="How many beat replicas.")] = 1,
    folder: Annotated[Path, typer.Option(help="Where embedded servers and logs live.")] = Path(".fleet"),
) -> None:
    """Run every lane and the beat on this machine until Ctrl-C; starts embedded servers where none are configured."""
    from fleet.local import run_until_interrupted

    run_until_interrupted(_root, folder=folder, beats=beats)


@cli.command()
def work(lane: Annotated[str, typer.Argument(help="The lane to serve.")]) -> None:
    """Serve one lane: a supervisor and its worker processes.

    While the application's code cannot be imported it stays, unready, says the cause once, and tries again.
    """
    from fleet.workers.loading import Loading, Unloadable, settings_without_the_application
    from fleet.workers.supervisor import Supervisor

    try:
        app = _start(follow_parent=True)
    except FleetError:
        raise
    except Unloadable as error:
        configured = settings_without_the_application()
        _configure(configured, follow_parent=True)
        Loading(_root, lane, configured).wait(error)
        return
    Supervisor(app, app.lane_here(lane)).run()


@cli.command()
def beat() -> None:
    """Run one beat replica; any number may run, one leads."""
    application.beat(_start(follow_parent=True))


@cli.command()
def migrate() -> None:
    """Bring the database to the newest revision of the engine and the application."""
    from fleet.servers import require_postgres
    from fleet.storage import database
    from fleet.storage.migrate import left_alone
    from fleet.storage.migrate import migrate as upgrade

    app = _start()
    require_postgres(database())
    for folder in left_alone(app.root):
        typer.echo(f"{folder} has an env.py: it is an Alembic environment of its own, and left alone")
    typer.echo("The database stands at " + ", ".join(upgrade(database(), app.root)))


@cli.command()
def check(
    against: Annotated[
        Path | None, typer.Option(help="The manifest of the release that runs: can this one be rolled out beside it?")
    ] = None,
    look: Annotated[
        bool, typer.Option("--look", help="Look into the queues whether messages of an actor that is gone are left.")
    ] = False,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Overlaps by what runs took that Redis has on record, not by budgets.")
    ] = False,
) -> None:
    """Judge the declarations; needs no server, but with --look and --recorded.

    Heavy work of the schedule that overlaps is a warning, and exit 0.
    """
    from fleet.check import check as judge
    from fleet.check import overlaps
    from fleet.graces import not_compared
    from fleet.servers import require_broker

    app = _start()
    judge(app)
    if recorded:
        require_broker(application.process_broker(), "console")
    for warning in overlaps(app, application.process_broker() if recorded else None):
        typer.echo(f"warning: {warning}", err=True)
    if against is not None:
        _roll(app, against, look)
    typer.echo(f"{len(app.actors)} actors, {len(app.lanes)} lanes, {len(app.schedule)} entries: nothing found.")
    if (unseen := not_compared(app)) is not None:
        typer.echo(unseen)


def _roll(app: application.App, against: Path, look: bool) -> None:
    from fleet.broker.counting import messages_of
    from fleet.errors import CheckFailed
    from fleet.manifest import manifest_of, read
    from fleet.rolling import findings
    from fleet.servers import require_broker

    broker = application.process_broker()
    if look:
        require_broker(broker, "console")
    waiting = (lambda queue, actor: messages_of(broker, queue, actor)) if look else None
    found = [*findings(read(against), manifest_of(app), app.root, waiting)]
    if found:
        raise CheckFailed(found)


@cli.command()
def manifest() -> None:
    """Print what this release declares, as JSON, for `fleet check --against` of the next one; needs no server."""
    from fleet.manifest import manifest_of

    typer.echo(manifest_of(_start()).text(), nl=False)


@cli.command()
def jobs(
    advise: Annotated[
        bool, typer.Option("--advise", help="Instead, whose soft budget does not fit what its jobs were seen to need.")
    ] = False,
) -> None:
    """Every actor with its budget, where that came from, and why; under each lane, by when a job's row is terminal.

    A message may ask for a budget of its own (time_limit); what runs in one shows as `message` in `fleet status`.
    """
    from fleet.views import jobs_tables

    app = _start()
    _print(*([_advice(app)] if advise else jobs_tables(app)))


def _advice(app: application.App) -> object:
    from fleet.advice import advice_table, judged
    from fleet.servers import require_postgres
    from fleet.storage import database

    require_postgres(database())
    with database().connect() as connection:
        return advice_table(app, judged(app, connection))


for commands in (cli_acl, cli_beat, cli_doctor, cli_night, cli_pgstat, cli_steps):
    commands.add_to(cli)


@cli.command()
def status(
    require: Annotated[
        str | None,
        typer.Option(help="A lane or `beat`: exit 1 unless this host serves it. For a container's healthcheck."),
    ] = None,
) -> None:
    """What runs now: lanes, queues, who leads."""
    from fleet.servers import require_broker, require_redis
    from fleet.views import status_tables
    from fleet.workers.presence import require_here

    app = _start()
    broker = application.process_broker()
    if require is not None:
        require_redis(broker.client)  # a healthcheck has its container's user, whatever its role
        require_here(broker.client, broker.namespace, "beat" if require == "beat" else app.lane(require).name)
        return
    require_broker(broker, "console")
    _print(*status_tables(app, broker))


@cli.command()
def drain(
    lane: Annotated[str, typer.Argument(help="The lane to drain on this host.")],
    wait: Annotated[bool, typer.Option("--wait", help="Return when it has drained; exit 1 if it does not.")] = False,
    because: Annotated[str, typer.Option("--because", help="Why, in words; it stands in the audit.")] = "",
) -> None:
    """Tell a lane's supervisors on this host to drain and end; exit 1 if there is none."""
    from fleet import audit
    from fleet.declarations import PAST_DRAIN
    from fleet.servers import require_redis
    from fleet.workers import draining
    from fleet.workers.presence import present

    declared = _start().lane_here(lane)
    broker = application.process_broker()
    require_redis(broker.client)
    done = draining.drain(present(broker.client, broker.namespace), declared.name)
    for line in done.lines():
        typer.echo(line)
    if not done.began:
        raise typer.Exit(1)
    audit.note(
        broker,
        who=audit.own_user(),
        what="drain",
        subject=declared.name,
        because=because,
        before=f"{len(done.signalled)} supervisors here served it",
        after="draining",
    )
    if wait:
        limit = declared.drain + PAST_DRAIN
        left = draining.wait_until_gone((*done.signalled, *done.draining), limit)
        for process in left:
            typer.echo(f"pid {process.pid} still runs after {limit}; look at its log.")
        if left:
            raise typer.Exit(1)
        typer.echo(f"Lane {declared.name} has drained here.")


cli.add_typer(cli_balance.cli, name="balance")
cli.add_typer(cli_dead.cli, name="dead")
cli.add_typer(cli_broker.cli, name="broker")
cli.add_typer(cli_console.cli, name="console")
cli.add_typer(cli_janitor.cli, name="janitor")
cli.add_typer(cli_outbox.cli, name="outbox")


def _print(*tables: object) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    for table in tables:
        console.print(table)


def main() -> None:
    """Run the command line; an engine's error is one sentence and exit code 2."""
    try:
        cli(standalone_mode=True)
    except FleetError as error:
        print(f"fleet: {error}", file=sys.stderr)
        raise SystemExit(2) from None
