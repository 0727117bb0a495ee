"""A process that does some work and is killed, by SIGKILL, at the n-th place where it could leave a mess.

The places: before and after every SQL statement, before every commit, and in a conversation with another server before
and after each write and after the first read of an answer. What lies between two of them leaves nothing behind. (How
many reads an answer takes is the network's choice: were each a place, no two runs would number them alike.)
"""

from __future__ import annotations

import gc
import os
import signal
import smtplib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, Protocol, TypeVar

import pytest
import redis
from dramatiq import Message
from sqlalchemy import event, func, update

from books import clients, waits
from fleet import app as application
from fleet import janitor
from fleet.broker import keys
from fleet.janitor import Chore
from fleet.storage import database, leases, session


class Work(Protocol):
    """Something that a message does to a row of its own."""

    def work(self) -> None:
        """Do it, as the same message each time."""


W = TypeVar("W", bound=Work)


def killed_at(place: int, work: Callable[[], object]) -> bool:
    """Do the work in a process of its own; False if it came to its end (or raised) before the place."""
    database().dispose()  # so that the two processes share no connection
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            gc.disable()  # a collection would touch, and so copy, every page of the parent
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


HALVES = pytest.mark.parametrize(
    "step", [pytest.param(2, id="every other place"), pytest.param(1, id="every place", marks=pytest.mark.soak)]
)
"""Every other place in one of two cases and the others in its sibling; `make soak-tests` kills at each in both.

Each commit but the last, which ends the work, stands at two places in a row at least: before the next statement and
after it.
"""


def places(work: Callable[[int], Callable[[], object]], begin: int = 1, step: int = 1) -> int:
    """How many places there are: `work(n)` is the work, on rows of its own, that is killed at its n-th.

    Where not each is tried, it may say up to `step` - 1 too many.
    """
    return next(place for place in count(begin, step) if not killed_at(place, work(place))) - 1


def killed_everywhere(flow: Callable[[], W], fewest: int, begin: int = 1, step: int = 1) -> list[W]:
    """Each killed at another place, and one that came to its end; there are so many places at least."""
    flow().work()  # what is imported here need not be by every process that is killed
    killed: list[W] = []

    def work(_: int) -> Callable[[], object]:
        killed.append(flow())
        return killed[-1].work

    assert places(work, begin, step) >= fewest
    return killed


@dataclass(frozen=True)
class Janitor:
    """A janitor, the rows with a lease that it looks after, and what its messages do, by actor."""

    name: str
    chores: Callable[[], Sequence[Chore]]
    rows: Sequence[type[Any]]
    queue: str
    works: Mapping[str, Callable[[Message[Any]], object]]

    def one_pass(self) -> janitor.Pass:
        return janitor.run(self.name, self.chores())

    def pass_over_the_dead(self, client: redis.Redis) -> None:
        """One pass, once the leases of the dead have lapsed, and what it sent."""
        with session() as s:
            for model in self.rows:
                dead = update(model).where(model.status == leases.RUNNING)
                s.execute(dead.values(lease_until=func.now() - timedelta(seconds=1)))
        self.one_pass()
        bodies = keys.bodies(application.process_broker().namespace, self.queue)
        for body in client.hvals(bodies):
            message: Message[Any] = Message.decode(body)
            if message.actor_name in self.works:
                self.works[message.actor_name](message)
        client.delete(bodies)


def _start_anew() -> None:
    """Share no connection with the parent. Of PostgreSQL it has none left; its statements stay compiled."""
    clients.forget()
    broker = application.process_broker()
    for name in ("client", "scripts", "namespace"):
        broker.__dict__.pop(name, None)


def _die_at(place: int) -> None:
    passed = count(1)
    answering = False

    def here(*_: object) -> None:
        nonlocal answering
        answering = False
        if next(passed) == place:
            os.kill(os.getpid(), signal.SIGKILL)

    def read() -> None:
        nonlocal answering
        if not answering:
            here()
            answering = True

    engine = database()
    for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
        event.listen(engine, name, here)
    _around(waits._Stream, "write", here, before=True)
    _around(waits._Stream, "read", read)
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
