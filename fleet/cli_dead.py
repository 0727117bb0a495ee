"""`fleet dead list|show|requeue|discard`: the dead letters from the command line.

What changes something shows first what it would touch, and does it only with `--yes`. Ctrl-C lets the letter under way
end, and says how many were moved; so does a Redis that goes away.

The context's object is what loads the application.
"""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Annotated

import redis
import typer
from rich.console import Console
from rich.table import Table

from fleet import audit
from fleet.app import App, process_broker
from fleet.broker.dead import DeadLetter, Filter, Place, count, discard, find, letters, read, requeue, select
from fleet.errors import NotDeclared
from fleet.hours import hours
from fleet.servers import require_broker

QueueOption = Annotated[str | None, typer.Option("--queue", help="Only this queue.")]
ActorOption = Annotated[str | None, typer.Option("--actor", help="Only this actor.")]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="failed, deadline, hook, undecodable, …")]
OlderOption = Annotated[float | None, typer.Option("--older", min=0, help="Only letters older than so many hours.")]
NewerOption = Annotated[float | None, typer.Option("--newer", min=0, help="Only letters newer than so many hours.")]
ArgumentOption = Annotated[str | None, typer.Option("--argument", help="Only with this text in one of its arguments.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do it; without, only show what would be touched.")]
BecauseOption = Annotated[str, typer.Option("--because", help="Why, in words; it stands in the audit.")]
MostOption = Annotated[int, typer.Option("--most", min=1, help="At most so many letters, oldest first.")]

_SHOWN_FIRST = 20
_DONE = {"requeue": "queued again", "discard": "dropped"}

cli = typer.Typer(help="The dead letters: list, show, requeue, discard.", no_args_is_help=True)


@cli.command("list")
def list_letters(
    context: typer.Context,
    queue: QueueOption = None,
    actor: ActorOption = None,
    reason: ReasonOption = None,
    older: OlderOption = None,
    newer: NewerOption = None,
    argument: ArgumentOption = None,
    page: Annotated[int, typer.Option(min=1, help="Which page.")] = 1,
    most: Annotated[int, typer.Option(min=1, help="Letters a page.")] = 50,
) -> None:
    """One line a letter, oldest first, a page at a time."""
    app: App = context.obj()
    which = _filter(app, actor, reason, older, newer, argument)
    queues = _queues(app, queue)
    before = (page - 1) * most
    found = list(islice(letters(process_broker(), queues, which, skip=before), most + 1))
    total = count(process_broker(), queues, which)
    _show(found[:most], _title(page, before, len(found[:most]), total, more=len(found) > most))


@cli.command()
def show(
    context: typer.Context, message: Annotated[str, typer.Argument(help="The letter's id, as `list` prints it.")]
) -> None:
    """Everything known of one letter; its arguments may be personal."""
    queues = _queues(context.obj(), None)
    letter = find(process_broker(), queues, message)
    if letter is None:
        raise NotDeclared("dead letter", message, (one.id for one in islice(letters(process_broker(), queues), 5)))
    told = {**letter.details, "queue": letter.queue, "actor": letter.actor, "died": letter.died.isoformat()}
    if letter.sealed:
        told["arguments"] = "sealed: no key in FLEET_PAYLOAD_KEYS here opens them; `fleet dead requeue` works without"
    elif letter.message is not None:
        told |= {"args": letter.message.args, "kwargs": letter.message.kwargs}
        if not letter.details:  # a stock worker's
            told |= {"exception": letter.exception, "traceback": letter.message.options.get("traceback")}
    typer.echo(json.dumps(told, indent=2, ensure_ascii=False, default=str))


@cli.command("requeue")
def requeue_letters(
    context: typer.Context,
    queue: QueueOption = None,
    actor: ActorOption = None,
    reason: ReasonOption = None,
    older: OlderOption = None,
    newer: NewerOption = None,
    argument: ArgumentOption = None,
    most: MostOption = 10_000,
    rate: Annotated[float, typer.Option(min=0.1, help="So many a second at most.")] = 20.0,
    because: BecauseOption = "",
    yes: YesOption = False,
) -> None:
    """Queue letters again, at a bounded rate; those that cannot be read stay."""
    app: App = context.obj()
    which = _filter(app, actor, reason, older, newer, argument)
    chosen = select(process_broker(), _queues(app, queue), which, most)
    if not _agreed(chosen, yes, "be queued again"):
        return
    became: Counter[str] = Counter()
    with _until_interrupted(chosen, became, "requeue", because) as stop:
        for outcome in requeue(process_broker(), chosen, a_second=rate, pause=stop.wait):
            became[outcome] += 1
            if stop.is_set():
                break


@cli.command("discard")
def discard_letters(
    context: typer.Context,
    queue: QueueOption = None,
    actor: ActorOption = None,
    reason: ReasonOption = None,
    older: OlderOption = None,
    newer: NewerOption = None,
    argument: ArgumentOption = None,
    most: MostOption = 10_000,
    because: BecauseOption = "",
    yes: YesOption = False,
) -> None:
    """Drop letters for good."""
    app: App = context.obj()
    which = _filter(app, actor, reason, older, newer, argument)
    chosen = select(process_broker(), _queues(app, queue), which, most)
    if not _agreed(chosen, yes, "be dropped for good"):
        return
    became: Counter[str] = Counter()
    with _until_interrupted(chosen, became, "discard", because) as stop:
        for dropped in discard(process_broker(), chosen):
            became["moved"] += dropped
            if stop.is_set():
                break


@contextmanager
def _until_interrupted(
    chosen: Sequence[Place], became: Counter[str], what: str, because: str
) -> Iterator[threading.Event]:
    """The first Ctrl-C sets the event, a second one ends the process; says at the end what became of the letters, here
    and in the audit."""
    stop = threading.Event()

    def interrupted(*_: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, interrupted)
    lost: redis.RedisError | None = None
    try:
        yield stop
    except redis.RedisError as error:
        lost = error
    finally:
        signal.signal(signal.SIGINT, before)
        said = f"{became['moved']:,} of {len(chosen):,} {_DONE[what]}"
        said += f"; {became['unreadable']:,} cannot be read and stay" if became["unreadable"] else ""
        said += f"; {became['gone']:,} were gone already" if became["gone"] else ""
        typer.echo(f"{said}.")
        _note(chosen, what, because, f"{said}; then it broke off: {type(lost).__name__}" if lost else said)
    if lost is not None or stop.is_set():
        why = f"Redis did not answer ({lost}), so that one more may be" if lost else "Interrupted"
        typer.echo(f"{why}. Say it again for the others.", err=True)
        raise typer.Exit(1 if lost else 130)


def _note(chosen: Sequence[Place], what: str, because: str, said: str) -> None:
    queues = ", ".join(sorted({place.queue for place in chosen}))
    before = f"{len(chosen):,} dead letters, the first {chosen[0].id[:80]}"
    try:
        audit.note(
            process_broker(),
            who=audit.own_user(),
            what=f"dead {what}",
            subject=queues,
            because=because,
            before=before,
            after=said,
        )
    except redis.RedisError as error:
        typer.echo(f"This does not stand in the audit: {error}", err=True)


def _filter(
    app: App, actor: str | None, reason: str | None, older: float | None, newer: float | None, argument: str | None
) -> Filter:
    if actor is not None and reason != "unknown actor":  # those letters' actors are declared nowhere
        app.actor(actor)
    older_than, newer_than = (
        None if given is None else hours(option, given) for option, given in (("--older", older), ("--newer", newer))
    )
    return Filter(actor, reason, older_than, newer_than, argument)


def _queues(app: App, queue: str | None) -> list[str]:
    require_broker(process_broker(), "console")
    known = [name for lane in app.lanes for name in lane.queues]
    if queue is not None and queue not in known:
        raise NotDeclared("queue", queue, known)
    return known if queue is None else [queue]


def _title(page: int, before: int, shown: int, total: int | None, *, more: bool) -> str:
    if not shown and page > 1:
        return f"page {page} is empty" + (f": there are {total:,} letters" if total is not None else "")
    if not shown:
        return "no dead letters"
    title = f"page {page}, letters {before + 1:,}–{before + shown:,}"
    if total is not None:
        return f"{title} of {total:,}"
    return f"{title}; more on page {page + 1}" if more else f"{title}; no more"


def _show(chosen: Sequence[DeadLetter], title: str) -> None:
    table = Table("died", "queue", "actor", "reason", "exception", "attempts", "id", title=title)
    for letter in chosen:
        attempts = str(letter.details.get("attempts", "-"))
        died = f"{letter.died:%Y-%m-%d %H:%M:%S}"
        actor = letter.actor + (" (sealed)" if letter.sealed else "")
        table.add_row(died, letter.queue, actor, letter.reason, letter.exception[:60], attempts, letter.id)
    console = Console()
    (console if console.is_terminal else Console(width=180)).print(table)


def _agreed(chosen: Sequence[Place], yes: bool, what: str) -> bool:
    if not chosen:
        typer.echo("No dead letter matches.")
    if yes or not chosen:
        return bool(chosen)
    first = list(read(process_broker(), chosen[:_SHOWN_FIRST]))
    _show(first, f"the first {len(first)} of {len(chosen):,}")
    typer.echo(f"{len(chosen):,} letters would {what}. Say --yes to do it.")
    return False
