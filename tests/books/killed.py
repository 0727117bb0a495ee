"""A process that does some work and is killed, by SIGKILL, at the n-th place where it could leave a mess.

The places: before and after every SQL statement, before every commit, and in a conversation with another server before
and after each write and after each read. What lies between two of them leaves nothing behind.
"""

from __future__ import annotations

import os
import signal
import smtplib
import sys
import traceback
from collections.abc import Callable
from itertools import count
from typing import Any

from sqlalchemy import event

from books import clients, waits
from fleet import app as application
from fleet.storage import database
from fleet.storage import engine as storage


def killed_at(place: int, work: Callable[[], object]) -> bool:
    """Do the work in a process of its own; False if it came to its end (or raised) before the place."""
    storage.database().dispose()  # so that the two processes share no connection
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _start_anew()
            _die_at(place)
            work()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    return False


def places(work: Callable[[int], Callable[[], object]]) -> int:
    """How many places there are: `work(n)` is the work, on rows of its own, that is killed at its n-th."""
    return next(place for place in count(1) if not killed_at(place, work(place))) - 1


def _start_anew() -> None:
    storage.database.cache_clear()
    storage._sessions.cache_clear()
    clients.forget()
    broker = application.process_broker()
    for name in ("client", "scripts", "namespace"):
        broker.__dict__.pop(name, None)


def _die_at(place: int) -> None:
    passed = count(1)

    def here(*_: object) -> None:
        if next(passed) == place:
            os.kill(os.getpid(), signal.SIGKILL)

    engine = database()
    for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
        event.listen(engine, name, here)
    _around(waits._Stream, "write", here, before=True)
    _around(waits._Stream, "read", here)
    _around(smtplib.SMTP, "send", here, before=True)
    _around(smtplib.SMTP, "getreply", here)


def _around(owner: Any, name: str, here: Callable[[], None], *, before: bool = False) -> None:
    inner = getattr(owner, name)

    def outer(*args: Any, **kwargs: Any) -> Any:
        if before:
            here()
        found = inner(*args, **kwargs)
        here()
        return found

    setattr(owner, name, outer)
