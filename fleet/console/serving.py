"""Runs the console: who may listen where, and that nobody listens to the world without a login.

On loopback nobody has to log in, unless tokens are given. Anywhere else the console does not start without them.

What uvicorn says, a page that raises included, goes where this process's log goes, scrubbed as all of it is.
"""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import sys
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from fleet.app import App, process_broker
from fleet.console import tokens
from fleet.console.desk import Desk
from fleet.console.sessions import Sessions
from fleet.console.site import make_app
from fleet.errors import AddressUnusable, SettingsInvalid
from fleet.logs import get_logger

if TYPE_CHECKING:
    from fleet.settings import Settings

log = get_logger(__name__)

_ENDS_WITHIN = 3  # seconds that open streams get


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def desk(app: App, configured: Settings, host: str) -> Desk:
    """The desk of a console that listens at `host`.

    Raises `SettingsInvalid` for tokens that cannot be read, and for none where others can reach it.
    """
    known = tokens.read(configured.console_tokens, configured.console_tokens_file)
    if not known and not is_loopback(host):
        raise SettingsInvalid(
            f"The console would listen on {host}, which others reach, and there is no token to log in with. Draw one "
            f"with `fleet console token NAME`, put its line into a file that FLEET_CONSOLE_TOKENS_FILE names, and "
            f"start again; or listen on 127.0.0.1."
        )
    return Desk(app, process_broker(), Sessions(login=bool(known)), known)


def serve(app: App, configured: Settings, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT; raises `SettingsInvalid`, `AddressUnusable`."""
    at = desk(app, configured, host)
    listening = _listen(host, port)
    ending = asyncio.Event()
    config = uvicorn.Config(
        make_app(at, ending),
        http="h11",
        loop="asyncio",
        lifespan="off",
        log_config=None,  # its own handlers would write past the scrubbing
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=bool(configured.console_proxies),
        forwarded_allow_ips=configured.console_proxies or None,
        timeout_graceful_shutdown=_ENDS_WITHIN,
    )
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}/"
    log.info("console_started", url=url, login=at.sessions.login, tokens=len(at.tokens))
    # Uvicorn raises a signal that ended it once more, which would make of an orderly end a process that was killed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    asyncio.run(_Server(config, ending).serve([listening]))


class _Server(uvicorn.Server):
    """Ends what streams when it is told to end, which would hold it up otherwise."""

    def __init__(self, config: uvicorn.Config, ending: asyncio.Event) -> None:
        super().__init__(config)
        self._ending = ending

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._ending.set()
        super().handle_exit(sig, frame)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        made = socket.socket(family)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen()  # before it is said where: whoever reads that may come at once
    except OSError as error:
        raise AddressUnusable(host, port, error) from None
    return made
