"""The same fleet on the real clock, with the sandbox as its world, until Ctrl-C: `make up`.

Rows and logs stay in the folder from one start to the next, as on a server.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from rich.console import Console
from sqlalchemy import select

from books.calendar import today
from books.models import BankAccount
from books.night.desk import Desk, fill
from books.night.plan import ACCOUNTS
from books.night.play import ROOT
from books.night.world import sandbox
from fleet import app as application
from fleet import database_url
from fleet.bell import Bell
from fleet.broker.connection import shown
from fleet.local import servers
from fleet.storage import session
from fleet.up import Fleet
from fleet.workers.presence import present

_POLL_SECONDS = 0.5


def stay(folder: Path, *, seed: int, console: Console) -> None:
    """Run lanes, two beats and the sandbox until SIGINT or SIGTERM, then drain.

    Raises `SandboxFailed`, `ServerUnreachable`, `ServerTooOld`, `ServerRefused` or `EmbeddedServerFailed`.
    """
    stop = Bell()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with (
        servers(ROOT, folder / "servers") as urls,
        sandbox(folder / "world", seed=seed, accounts=ACCOUNTS, environment={}) as world,
    ):
        os.environ.update(world.environment())
        app = application.load(ROOT)
        console.print(
            f"Redis       {shown(urls.redis_url)}\nPostgreSQL  {database_url.shown(urls.database_url)}\n"
            f"bank        {world.bank_url}\n"
            f"model       {world.model_url}\ngateway     {world.gateway_url}\nmail        {world.mail_url}\n"
            f"logs        {folder / 'logs'}",
            soft_wrap=True,
        )
        with session() as s:
            filled = s.scalar(select(BankAccount.id).limit(1)) is not None
        fleet = Fleet(app, folder / "logs", environment={}, beats=2)
        fleet.start_lanes()
        fleet.start_beats()
        try:
            if not filled:
                Desk(fill(folder / "inbox", seed=seed, today=today())).send_all()
                console.print("An evening's uploads and requests were sent.")
            _wait(fleet, stop, console)
        finally:
            console.print("Draining …")
            fleet.stop()


def _wait(fleet: Fleet, stop: Bell, console: Console) -> None:
    broker, told = application.process_broker(), set[str]()
    while not stop.wait(_POLL_SECONDS):
        for report in present(broker.client, broker.namespace):
            if report.metrics and report.metrics not in told:
                console.print(f"metrics     {report.metrics} ({report.name})")
                told.add(report.metrics)
        for name, code in fleet.ended().items():
            console.print(f"{name} ended by itself with exit code {code}; see {fleet.logs / name}.log")
