"""Tell systemd how a process is (`sd_notify`): ready, stopping, its status, and that it still turns (the watchdog).

Whoever owns the loop calls these from it, so that a loop which hangs no longer feeds the watchdog. Without
`NOTIFY_SOCKET` nothing happens. Not guaranteed: that a word arrives; what could not be sent is said once in the log,
and ready, status and watchdog are tried again at the next call.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Protocol

from fleet.logs import get_logger

log = get_logger(__name__)

_SEND_SECONDS = 0.1  # the loop that calls has hard budgets to keep


class SystemdSettings(Protocol):
    """What `Systemd.of` reads of the settings."""

    @property
    def notify_socket(self) -> str | None: ...
    @property
    def watchdog_usec(self) -> int | None: ...
    @property
    def watchdog_pid(self) -> int | None: ...


class Systemd:
    """One process's line to the service manager; one thread calls it."""

    def __init__(self, address: str | None, watchdog: timedelta | None = None) -> None:
        self._address = f"\0{address[1:]}" if address and address.startswith("@") else address
        self._feed_every = watchdog.total_seconds() / 2 if watchdog else None
        self._fed_at: float | None = None
        self._ready, self._status, self._complained = False, "", False

    @classmethod
    def of(cls, settings: SystemdSettings) -> Systemd:
        """For this process; a watchdog that is meant for another one is not fed."""
        mine = settings.watchdog_pid in (None, os.getpid())
        micros = settings.watchdog_usec if mine else None
        return cls(settings.notify_socket, timedelta(microseconds=micros) if micros else None)

    def ready(self) -> None:
        """The service is up; sent once."""
        if not self._ready:
            self._ready = self._send("READY=1")

    def stopping(self, status: str) -> None:
        """The service ends, and how; the unit's `TimeoutStopSec` runs from here."""
        self._send("STOPPING=1", f"STATUS={_one_line(status)}")
        self._status = status

    def status(self, text: str) -> None:
        """What `systemctl status` shows; sent when it changed."""
        if text != self._status and self._send(f"STATUS={_one_line(text)}"):
            self._status = text

    def feed(self, now: float) -> None:
        """Say that the loop turns, at half of the watchdog's time; `now` by `clock.monotonic()`."""
        if self._feed_every is None or (self._fed_at is not None and now - self._fed_at < self._feed_every):
            return
        if self._send("WATCHDOG=1"):
            self._fed_at = now

    def _send(self, *assignments: str) -> bool:
        if not self._address:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.settimeout(_SEND_SECONDS)
                line.sendto("\n".join(assignments).encode(errors="replace"), self._address)
        except OSError as error:
            if not self._complained:
                log.warning("systemd_not_told", socket=self._address.replace("\0", "@"), error=str(error))
            self._complained = True
            return False
        self._complained = False
        return True


def _one_line(text: str) -> str:
    """A line break would begin another assignment."""
    return " ".join(text.split())
