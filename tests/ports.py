"""Ports for servers that a test starts itself, or kills and starts again at the same address.

One that the system hands out (port 0) may, once let go, become the near end of anybody's connection. These lie below
what Linux and macOS take for connections; each pytest worker has a share, and a process gets none twice.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator, Mapping

PORTS = range(10_000, 30_000)


def share(environment: Mapping[str, str] = os.environ) -> range:
    """The ports of this process alone, among the workers of one pytest-xdist; without it, all."""
    workers = int(environment.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(environment.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = len(PORTS) // workers
    return PORTS[worker * size : (worker + 1) * size]


def _in_turn(ports: range) -> Iterator[int]:
    begin = random.SystemRandom().randrange(len(ports))  # another run of tests may be at work on this machine
    yield from ports[begin:]
    yield from ports[:begin]


_left = _in_turn(share())


def free_port() -> int:
    """A port of 127.0.0.1 at which nobody listens, and which this process was not given before."""
    for port in _left:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError(f"{share()} are used up")
