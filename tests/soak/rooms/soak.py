"""The soak's own queue: messages that are counted, and jobs that harm the process they run in."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from contextlib import suppress
from datetime import timedelta

from fleet import Budget, queue

soak = queue("soak")
HARD = Budget(timedelta(seconds=3), timedelta(seconds=5), because="short, so that an hour holds many that overrun it")


def _note(number: int) -> None:
    handle = os.open(os.environ["SOAK_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{number}\n".encode())
    os.close(handle)


@soak.actor
def tally(number: int, seconds: float) -> None:
    """Take a moment, then write down that it ran, where nothing of the fleet's can lose it."""
    time.sleep(seconds)
    _note(number)


@soak.actor
def soak_tick() -> None:
    """What the entry that is deployed over and over sends."""


@soak.actor(budget=HARD)
def poison() -> None:
    """Kill the process that runs it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), signal.SIGKILL)


@soak.actor(budget=HARD)
def eat_memory() -> None:
    """Take memory until the process is over its lane's `kill_rss`."""
    eaten = []
    while True:
        eaten.append(b"x" * (16 << 20))
        time.sleep(0.05)


@soak.actor(budget=HARD)
def hold_the_gil(seconds: int) -> None:
    """Sleep in C and let no other thread of the process run."""
    ctypes.PyDLL(None).sleep(seconds)


@soak.actor(budget=HARD)
def overrun(seconds: float) -> None:
    """Swallow each deadline and go on beyond the hard budget."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        with suppress(BaseException):
            time.sleep(0.1)
