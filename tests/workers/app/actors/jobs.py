"""Jobs that write what they do into a journal, one line an event, appended whole."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from dramatiq import Broker, Middleware

from fleet import queue
from fleet.actor import current_message_id
from fleet.app import process_broker
from fleet.logs import get_logger

jobs = queue("jobs")


def serve_figures() -> int:
    """What a third party's middleware would have run beside the workers."""
    return 0


class ThirdParty(Middleware):
    """Middleware that begins something in each worker process, and wants a process beside them."""

    @property
    def forks(self) -> list[Callable[[], int]]:
        return [serve_figures]

    def after_process_boot(self, broker: Broker) -> None:
        get_logger(__name__).info("third_party_booted", pid=os.getpid())


process_broker().add_middleware(ThirdParty())


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
