"""Jobs that write what they do into a journal, one line an event, appended whole."""

from __future__ import annotations

import os
import time
from pathlib import Path

from fleet import queue
from fleet.actor import current_message_id

jobs = queue("jobs")


def note(journal: str, event: str, name: str) -> None:
    line = f"{event} {name} {os.getpid()} {current_message_id()} {time.time()}\n"
    handle = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, line.encode())
    os.close(handle)


@jobs.actor
def wait(journal: str, name: str, until: str, seconds: float) -> None:
    """Run until the file `until` is there, or for so many seconds."""
    note(journal, "begin", name)
    print(f"job {name} was here")  # not flushed, as jobs are
    ends = time.monotonic() + seconds
    while not Path(until).exists() and time.monotonic() < ends:
        time.sleep(0.02)
    note(journal, "end", name)
