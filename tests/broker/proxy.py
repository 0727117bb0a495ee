"""A TCP proxy before Redis that loses replies, cuts connections, delays, and goes silent on command.

It counts scripts (EVALSHA, EVAL) of all connections together: `lose_reply(3)` lets the third from now reach Redis and
closes its connection in place of the reply, `lose_request(3)` closes it before, and `hold_back(seconds)` lets the next
one wait on its way there: its sender decided long before it arrives. A command longer than one read counts
once, since only its first bytes are looked at.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Self

_READ = 1 << 20


class Proxy:
    """Listens on a free port while used as a context."""

    def __init__(self, url: str) -> None:
        self._database = url.removeprefix("redis://").partition("/")[2]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self.lead_to(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._reply_in = self._request_in = 0
        self.scripts = 0
        self._held_back = 0.0
        self.delay = 0.0
        self.silent = False
        self.mute_subscriptions = False

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/{self._database or 0}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def lose_reply(self, nth: int = 1) -> None:
        with self._lock:
            self._reply_in = nth

    def lose_request(self, nth: int = 1) -> None:
        with self._lock:
            self._request_in = nth

    def hold_back(self, seconds: float) -> None:
        with self._lock:
            self._held_back = seconds

    @property
    def lost(self) -> bool:
        """Whether everything that was to be lost is lost."""
        return self._reply_in == 0 and self._request_in == 0

    def lead_to(self, url: str) -> None:
        """From now on another server stands behind this address, as after a failover; every connection is cut."""
        host, _, port = url.removeprefix("redis://").partition("/")[0].partition(":")
        self._target = (host, int(port))
        self.cut()

    def cut(self) -> None:
        """Close every connection, half-way through whatever it carries."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _close(*pair)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.silent:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._pairs.append((client, server))
                swallow, subscribed = threading.Event(), threading.Event()
                threading.Thread(target=self._requests, args=(client, server, swallow, subscribed), daemon=True).start()
                threading.Thread(target=self._replies, args=(client, server, swallow, subscribed), daemon=True).start()

    def _requests(
        self, client: socket.socket, server: socket.socket, swallow: threading.Event, subscribed: threading.Event
    ) -> None:
        with suppress(OSError):
            while said := client.recv(_READ):
                if b"SUBSCRIBE" in said[:24]:
                    subscribed.set()
                if said[:1] == b"*" and b"EVAL" in said[:24] and not self._let_through(swallow):
                    break
                if not self.silent:
                    server.sendall(said)
        _close(client, server)

    def _let_through(self, swallow: threading.Event) -> bool:
        """Count a script; False if its request is the one to lose. `swallow` is set if its reply is."""
        with self._lock:
            self.scripts += 1
            reply, request = self._reply_in == 1, self._request_in == 1
            self._reply_in, self._request_in = max(0, self._reply_in - 1), max(0, self._request_in - 1)
            late, self._held_back = self._held_back, 0.0
        time.sleep(late)
        if reply:
            swallow.set()
        return not request

    def _replies(
        self, client: socket.socket, server: socket.socket, swallow: threading.Event, subscribed: threading.Event
    ) -> None:
        with suppress(OSError):
            while said := server.recv(_READ):
                if swallow.is_set():
                    break
                if self.delay:
                    time.sleep(self.delay)
                if not self.silent and not (self.mute_subscriptions and subscribed.is_set()):
                    client.sendall(said)
        _close(client, server)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
