"""A backlog of rows outside of every server: files, which a killed process leaves as they are.

A row is a file in `left`. A chunk claims rows by renaming them to `claimed`, with its process in the name, and a row
whose process is dead is free again; done is renamed to `done`. The journal has a line where a chunk begins and ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from fleet import elastic, queue, wire
from fleet.actor import current_message

ROWS = Path(os.environ.get("TEST_ROWS", "."))
jobs = queue("jobs")


@jobs.actor
def sort() -> None:
    elastic.chunk(chunk)


@queue("ticks").actor
def tick() -> None: ...


def backlog() -> int:
    """How many rows are not done; hangs while the test says so."""
    while (ROWS / "hang").exists():
        time.sleep(0.05)
    return len(list((ROWS / "left").iterdir())) + len(list((ROWS / "claimed").iterdir()))


def chunk(size: int) -> bool:
    """Work on up to so many rows."""
    message = current_message()
    number = -1 if message is None else message.options.get(wire.CHAIN, -1)
    note("begin", number)
    mine = claim(size)
    for row in mine:
        time.sleep(float((ROWS / "seconds").read_text()))
        row.rename(ROWS / "done" / row.name.split("@")[0])
    note("end", number)
    return bool(mine) and any((ROWS / "left").iterdir())


def claim(size: int) -> list[Path]:
    """Rows that are this process's from now on."""
    with (ROWS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for row in (ROWS / "claimed").iterdir():
            name, _, pid = row.name.partition("@")
            if not Path(f"/proc/{pid}").exists():
                row.rename(ROWS / "left" / name)
        rows = sorted((ROWS / "left").iterdir())[:size]
        return [row.rename(ROWS / "claimed" / f"{row.name}@{os.getpid()}") for row in rows]


def note(event: str, number: int) -> None:
    with (ROWS / "journal").open("a") as journal:
        journal.write(f"{event} {number} {os.getpid()} {time.monotonic():.4f}\n")
