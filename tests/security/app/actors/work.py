"""Jobs of every kind of end; each writes a line, `what name`, into the file that TEST_JOURNAL names."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

from fleet import elastic, queue, quota
from fleet.actor import current_message
from fleet.errors import RetryLater

work = queue("work")


def note(what: str, name: str) -> int:
    """Write a line, whole; returns how often that line is there."""
    line = f"{what} {name}\n".encode()
    handle = os.open(os.environ["TEST_JOURNAL"], os.O_RDWR | os.O_APPEND | os.O_CREAT)
    os.write(handle, line)
    found = os.pread(handle, os.fstat(handle).st_size, 0).count(line)
    os.close(handle)
    return found


def rows() -> int:
    """What the elastic entry has to do."""
    return 40


@work.actor
def did(name: str) -> None:
    note("did", name)


@work.actor
def stumbles(name: str) -> None:
    if note("stumbles", name) == 1:
        raise ValueError("the first time")


@work.actor
def doomed(name: str) -> None:
    note("doomed", name)
    raise ValueError("every time")


@work.actor
def kills(name: str) -> None:
    note("kills", name)
    os.kill(os.getpid(), signal.SIGKILL)


@work.actor
def placed(name: str) -> None:
    with quota.place("model", people=False):
        note("placed", name)


@work.actor
def parks(name: str) -> None:
    if note("parks", name) == 1:
        raise RetryLater("the bank is full", after=timedelta(seconds=1), key="bank")


@work.actor
def sends(name: str) -> None:
    did.send(f"sent-{name}")
    did.send_many((f"many-{name}",) for _ in range(3))


@work.actor
def sorts() -> None:
    elastic.chunk(lambda size: note("sorted", "chunk") < 12)


@work.actor
def ticks() -> None:
    message = current_message()
    note("ticks", "slot" if message is not None and "slot" in message.options else "hand")
