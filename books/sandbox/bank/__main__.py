"""`python -m books.sandbox.bank`: serves the aggregator until SIGTERM or SIGINT, which end it at once.

`--ready-file` appears, with the base URL in it, when the server listens. The night, if one is played, comes from the
settings' environment like in every other process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
from datetime import date
from pathlib import Path

import uvicorn

from books.sandbox.bank.connections import FEWEST_ACCOUNTS
from books.sandbox.bank.journal import Journal
from books.sandbox.bank.ledger import BERLIN
from books.sandbox.bank.server import Aggregator
from fleet.clock import clock, configure
from fleet.errors import SettingsInvalid
from fleet.settings import Settings


class _Server(uvicorn.Server):
    """Says where it listens once it does, and does not wait for idle connections when it ends."""

    def __init__(self, config: uvicorn.Config, ready_file: Path | None) -> None:
        super().__init__(config)
        self._ready_file = ready_file

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, os._exit, 0)  # the journal is unbuffered: nothing is left to save
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        url = f"http://{host}:{port}"
        if self._ready_file is None:
            print(f"The sandbox bank listens on {url}", flush=True)
        else:
            part = self._ready_file.with_name(f"{self._ready_file.name}.part")
            part.write_text(f"{url}\n")
            part.replace(self._ready_file)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m books.sandbox.bank", description="A seeded bank aggregator.")
    parser.add_argument("--port", type=int, default=0, help="0 (default): any free port")
    parser.add_argument("--ready-file", type=Path, help="gets the base URL when the server listens")
    parser.add_argument("--log", type=Path, help="gets one JSON line a request")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--accounts", type=int, default=300)
    parser.add_argument("--origin", type=date.fromisoformat, help="the ledger's today, YYYY-MM-DD; default: now")
    arguments = parser.parse_args()
    if arguments.accounts < FEWEST_ACCOUNTS:
        parser.error(f"--accounts {arguments.accounts}: at least {FEWEST_ACCOUNTS} are needed to have every kind")
    return arguments


def main() -> None:
    arguments = _arguments()
    try:
        configure(Settings.read())
    except SettingsInvalid as error:
        raise SystemExit(str(error)) from None
    origin = arguments.origin or clock.now().astimezone(BERLIN).date()
    aggregator = Aggregator(arguments.seed, arguments.accounts, origin, Journal(arguments.log))
    config = uvicorn.Config(
        aggregator.app(),
        host="127.0.0.1",
        port=arguments.port,
        http="h11",
        loop="asyncio",
        lifespan="off",
        log_level="warning",
        access_log=False,
        backlog=512,
        timeout_keep_alive=75,  # longer than any client keeps an idle connection: the client closes first
    )
    _Server(config, arguments.ready_file).run()


if __name__ == "__main__":
    main()
