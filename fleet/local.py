"""One application's whole fleet on this machine, on embedded servers where none are configured: `fleet up`.

The URLs of embedded servers are put into this process's environment, where its children and its own settings, read
afterwards, find them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from sqlalchemy import create_engine

from fleet import app as application
from fleet import database_url, embedded
from fleet.bell import Bell
from fleet.broker import FleetBroker
from fleet.broker.connection import shown
from fleet.servers import require_broker, require_postgres
from fleet.settings import Settings
from fleet.storage.engine import psycopg_url
from fleet.storage.migrate import migrate
from fleet.up import Fleet

_POLL_SECONDS = 0.5


@contextmanager
def servers(root: Path, folder: Path) -> Iterator[embedded.Urls]:
    """Configured servers where their URL is set, embedded ones where it is not; reachable, new enough and migrated.

    Raises `ServerUnreachable`, `ServerTooOld`, `ServerRefused`, `MigrationBlocked` or `EmbeddedServerFailed`.
    """
    configured = Settings.read()
    wanted = embedded.Wanted(valkey=configured.redis_url is None, postgres=configured.database_url is None)
    with embedded.servers(folder, wanted) as started:
        urls = embedded.Urls(
            redis_url=configured.redis_url or started.redis_url,
            database_url=configured.database_url or started.database_url,
        )
        os.environ.update(FLEET_REDIS_URL=urls.redis_url, FLEET_DATABASE_URL=urls.database_url)
        broker = FleetBroker(url=urls.redis_url, namespace=configured.namespace, middleware=[])
        require_broker(broker)
        broker.client.close()
        engine = create_engine(psycopg_url(urls.database_url))
        require_postgres(engine)
        migrate(engine, root)
        engine.dispose()
        yield urls


def run_until_interrupted(root: Path, *, folder: Path, beats: int) -> None:
    """Run every lane and the beat until SIGINT or SIGTERM; returns when all have drained."""
    stop = Bell()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    console = Console()
    with servers(root, folder.resolve()) as urls:
        app = application.load(root)
        fleet = Fleet(app, folder.resolve() / "logs", environment={}, beats=beats)
        database = database_url.shown(urls.database_url)
        console.print(f"Redis       {shown(urls.redis_url)}\nPostgreSQL  {database}\nlogs        {fleet.logs}")
        fleet.start_lanes()
        fleet.start_beats()
        console.print(f"{len(app.lanes)} lanes and {beats} beat(s) started; `fleet status` shows them. Ctrl-C ends.")
        try:
            while not stop.wait(_POLL_SECONDS):
                for name, code in fleet.ended().items():
                    console.print(f"{name} ended by itself with exit code {code}; see {fleet.logs / name}.log")
        finally:
            console.print("Draining …")
            fleet.stop()
