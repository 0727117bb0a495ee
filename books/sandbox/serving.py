"""What the sandbox's servers share: how they start, say where they listen, keep a log, and end.

A server is ready when its ready file is there, with its URL in it. It ends at once on SIGTERM or SIGINT: its log is
unbuffered, so nothing is left to save.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from fleet.clock import clock, configure
from fleet.errors import SettingsInvalid
from fleet.settings import Settings
from fleet.workers.parent import follow


class Journal:
    """A server's request log: one JSON line a request, the judge that a night's report checks records against.

    Each line is one `write` to a file opened for appending: lines of several writers never mix, and nothing is
    buffered that a SIGKILL could take along. Without a path, nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def line(self, **fields: Any) -> None:
        """The fields, after `time` (night, ISO) and `real` (seconds since 1970)."""
        if self._file is None:
            return
        entry = {"time": clock.now().isoformat(), "real": clock.real_now().timestamp(), **fields}
        os.write(self._file, json.dumps(entry).encode() + b"\n")


def parser(module: str, description: str) -> argparse.ArgumentParser:
    """The options that every server has."""
    made = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    made.add_argument("--port", type=int, default=0, help="0 (default): any free port")
    made.add_argument("--ready-file", type=Path, help="gets the URL when the server listens")
    made.add_argument("--log", type=Path, help="gets one JSON line a request")
    return made


def set_clock() -> None:
    """The night, if one is played, comes from the settings' environment like in every other process.

    Whoever started the server for himself (`FLEET_PARENT`) takes it along when he ends.
    """
    try:
        settings = Settings.read()
    except SettingsInvalid as error:
        raise SystemExit(str(error)) from None
    configure(settings)
    follow(settings.parent)


def end_at_once() -> None:
    """SIGTERM and SIGINT end the process; called from within the running loop."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, os._exit, 0)


def announce(url: str, ready_file: Path | None, name: str) -> None:
    """Write the ready file in one rename, or print the URL where nobody asked for one."""
    if ready_file is None:
        print(f"The {name} listens on {url}", flush=True)
        return
    part = ready_file.with_name(f"{ready_file.name}.part")
    part.write_text(f"{url}\n")
    part.replace(ready_file)


def serve(app: ASGIApp, port: int, ready_file: Path | None, name: str) -> None:
    """Serve HTTP on the loopback until a signal ends the process."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        http="h11",
        loop="asyncio",
        lifespan="off",
        log_level="warning",
        access_log=False,
        backlog=512,
        timeout_keep_alive=75,  # longer than any client keeps an idle connection: the client closes first
    )
    _Server(config, ready_file, name).run()


class _Server(uvicorn.Server):
    """Says where it listens once it does, and does not wait for idle connections when it ends."""

    def __init__(self, config: uvicorn.Config, ready_file: Path | None, name: str) -> None:
        super().__init__(config)
        self._ready_file, self._name = ready_file, name

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        end_at_once()
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        announce(f"http://{host}:{port}", self._ready_file, self._name)
