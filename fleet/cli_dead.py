"""`fleet dead list|show|requeue|discard`: the dead letters from the command line.

What changes something shows first what it would touch, and does it only with `--yes`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import islice
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fleet.app import App, process_broker
from fleet.broker.dead import DeadLetter, Filter, discard, letters, requeue
from fleet.errors import NotDeclared
from fleet.servers import require_redis

QueueOption = Annotated[str | None, typer.Option("--queue", help="Only this queue.")]
ActorOption = Annotated[str | None, typer.Option("--actor", help="Only this actor.")]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="failed, deadline, hook, undecodable, …")]
HoursOption = Annotated[float | None, typer.Option("--older", min=0, help="Only letters older than so many hours.")]
ArgumentOption = Annotated[str | None, typer.Option("--argument", help="Only with this text in one of its arguments.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do it; without, only show what would be touched.")]
MostOption = Annotated[int, typer.Option("--most", min=1, help="At most so many letters, oldest first.")]


def commands(start: Callable[[], App]) -> typer.Typer:
    """The sub-commands; `start` loads the application."""
    cli = typer.Typer(help="The dead letters: list, show, requeue, discard.", no_args_is_help=True)

    @cli.command("list")
    def list_letters(
        queue: QueueOption = None,
        actor: ActorOption = None,
        reason: ReasonOption = None,
        older: HoursOption = None,
        argument: ArgumentOption = None,
        most: MostOption = 50,
    ) -> None:
        """One line a letter, oldest first."""
        _show(_found(start(), queue, _filter(actor, reason, older, argument), most))

    @cli.command()
    def show(message: Annotated[str, typer.Argument(help="The letter's id, as `list` prints it.")]) -> None:
        """Everything known of one letter; its arguments may be personal."""
        letter = _one(start(), message)
        told = {"queue": letter.queue, "actor": letter.actor, "died": str(letter.died), **letter.details}
        if letter.message is not None:
            told |= {"args": letter.message.args, "kwargs": letter.message.kwargs}
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False, default=str))

    @cli.command("requeue")
    def requeue_letters(
        queue: QueueOption = None,
        actor: ActorOption = None,
        reason: ReasonOption = None,
        older: HoursOption = None,
        argument: ArgumentOption = None,
        most: MostOption = 10_000,
        rate: Annotated[float, typer.Option(min=0.1, help="So many a second at most.")] = 20.0,
        yes: YesOption = False,
    ) -> None:
        """Queue letters again, at a bounded rate."""
        chosen = _found(start(), queue, _filter(actor, reason, older, argument), most)
        if _agreed(chosen, yes, "be queued again"):
            typer.echo(f"{requeue(process_broker(), chosen, a_second=rate)} of {len(chosen)} queued again.")

    @cli.command("discard")
    def discard_letters(
        queue: QueueOption = None,
        actor: ActorOption = None,
        reason: ReasonOption = None,
        older: HoursOption = None,
        argument: ArgumentOption = None,
        most: MostOption = 10_000,
        yes: YesOption = False,
    ) -> None:
        """Drop letters for good."""
        chosen = _found(start(), queue, _filter(actor, reason, older, argument), most)
        if _agreed(chosen, yes, "be dropped for good"):
            typer.echo(f"{discard(process_broker(), chosen)} of {len(chosen)} dropped.")

    return cli


def _filter(actor: str | None, reason: str | None, older: float | None, argument: str | None) -> Filter:
    return Filter(actor, reason, None if older is None else timedelta(hours=older), argument)


def _found(app: App, queue: str | None, which: Filter, most: int) -> list[DeadLetter]:
    broker = process_broker()
    require_redis(broker.client)
    known = [name for lane in app.lanes for name in lane.queues]
    if queue is not None and queue not in known:
        raise NotDeclared("queue", queue, known)
    if which.actor is not None:
        app.actor(which.actor)
    return list(islice(letters(broker, known if queue is None else [queue], which), most))


def _one(app: App, message: str) -> DeadLetter:
    every = _found(app, None, Filter(), 10**9)
    for letter in every:
        if letter.id == message or (letter.message and letter.message.message_id == message):
            return letter
    raise NotDeclared("dead letter", message, (letter.id for letter in every[:5]))


def _show(chosen: Sequence[DeadLetter]) -> None:
    table = Table(
        "died", "queue", "actor", "reason", "exception", "attempts", "id", title=f"{len(chosen)} dead letters"
    )
    for letter in chosen:
        attempts = str(letter.details.get("attempts", "-"))
        died = f"{letter.died:%Y-%m-%d %H:%M:%S}"
        table.add_row(died, letter.queue, letter.actor, letter.reason, letter.exception[:60], attempts, letter.id)
    console = Console()
    (console if console.is_terminal else Console(width=180)).print(table)


def _agreed(chosen: Sequence[DeadLetter], yes: bool, what: str) -> bool:
    if yes or not chosen:
        return True
    _show(chosen[:20])
    typer.echo(f"{len(chosen)} letters would {what}. Say --yes to do it.")
    return False
