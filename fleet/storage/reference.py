"""Reference data: read once a process, and read again when somebody, in whatever process, committed a change to it.

A trigger on the table tells of every change with NOTIFY, which PostgreSQL delivers on commit; a rollback tells nobody.
The first use in a process starts a thread that listens on a connection of its own, beside the pool. What is kept is
trusted only while that connection answers: it is asked every two seconds, and after ten without an answer, or as soon
as it breaks, every use reads the table, as it does where the trigger is missing. After a fork a process listens itself.

Not guaranteed: that a change is seen in the moment of its commit, also by the process that made it. A notification
takes a millisecond or so; one that the network swallowed is noticed within ten seconds. Nor anything behind a pooler
that gives each transaction another server connection: LISTEN needs one that stays.

On failure: a connection that cannot be made is said once, and tried again after 1 to 30 s.
"""

from __future__ import annotations

import os
import random
import selectors
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from fleet import deadline
from fleet.clock import clock
from fleet.logs import brief, get_logger
from fleet.storage.engine import database, dedicated, session

if TYPE_CHECKING:
    from psycopg import Connection, Notify

log = get_logger(__name__)

T = TypeVar("T")

CHANNEL = "fleet_reference"  # the notification's payload is the table's name
TRIGGER_CALLS = "fleet_tell_of_change"
TRUSTED_FOR = timedelta(seconds=10)
_ASKS_EVERY_SECONDS = 2.0
_LONGEST_PAUSE = 30.0
_TOLD_OF = """
SELECT told.relname FROM pg_trigger JOIN pg_class told ON told.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid
WHERE proname = %s AND tgenabled <> 'D'
"""


class Reference(Generic[T]):
    """What `read` makes of a table. All threads share what it returns, so it must be something that nobody changes."""

    def __init__(self, table: str, read: Callable[[Session], T]) -> None:
        self.table, self.read = table, read

    def get(self) -> T:
        """What is kept, or what `read` returns in a transaction of its own; so call it outside of one.

        Raises what the database raises, and `SettingsInvalid` if none is configured.
        """
        return _listener().get(self)


class _Listener(threading.Thread):
    """Keeps what was read of one database by one process, and drops it when it hears of a change."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(name="reference", daemon=True)
        self._engine = engine
        self._lock = threading.Lock()
        self._begun = False
        self._stopped = threading.Event()
        self._said = False
        self._kept: dict[Reference[Any], Any] = {}
        self._told_of: frozenset[str] = frozenset()
        self._changes = 0  # of whatever table: what was read across one is not kept
        self._heard: float | None = None  # when the last question was asked that was answered; None without connection

    def get(self, reference: Reference[T]) -> T:
        with self._lock:
            if self._trusted() and reference in self._kept:
                kept: T = self._kept[reference]
                return kept
            before = self._changes if self._trusted() else None
        with session() as s:
            value = reference.read(s)
        with self._lock:
            if before == self._changes and self._trusted() and reference.table in self._told_of:
                self._kept[reference] = value
        return value

    def _trusted(self) -> bool:
        return self._heard is not None and clock.monotonic() - self._heard < TRUSTED_FOR.total_seconds()

    def begin(self) -> None:
        with self._lock:
            begun, self._begun = self._begun, True
        if not begun:
            self.start()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        pause = 1.0
        while not self._stopped.is_set():
            try:
                self._listen()
            except Exception as error:  # the driver's or the network's, in one of many ways
                pause = 1.0 if self._forget() else min(pause * 2, _LONGEST_PAUSE)
                if not self._said and not self._stopped.is_set():
                    log.warning("reference_not_heard", error=brief(error), instead="every use reads the table")
                self._said = True
                self._stopped.wait(pause * random.uniform(0.5, 1.5))

    def _forget(self) -> bool:
        """Drop everything; whether it had been connected."""
        with self._lock:
            was_connected = self._heard is not None
            self._heard = None
            self._changes += 1
            self._kept.clear()
        return was_connected

    def _listen(self) -> None:
        with dedicated(self._engine, "fleet reference") as connection, selectors.DefaultSelector() as told:
            connection.add_notify_handler(self._changed)
            connection.execute(f"LISTEN {CHANNEL}")
            told_of = frozenset(row[0] for row in connection.execute(_TOLD_OF, [TRIGGER_CALLS]))
            with self._lock:
                self._told_of = told_of
            told.register(connection.fileno(), selectors.EVENT_READ)
            while not self._stopped.is_set():
                self._ask(connection)
                told.select(_ASKS_EVERY_SECONDS)

    def _ask(self, connection: Connection[Any]) -> None:
        """Hear what there is to hear, by a question whose answer also says that the connection lives."""
        asked = clock.monotonic()
        connection.execute("SELECT 1")
        with self._lock:
            self._heard = asked
        if self._said:
            log.warning("reference_heard_again")
            self._said = False

    def _changed(self, notification: Notify) -> None:
        with self._lock:
            self._changes += 1
            for reference in [kept for kept in self._kept if kept.table == notification.payload]:
                del self._kept[reference]


_listeners: dict[tuple[int, Engine], _Listener] = {}
"""By process, since a fork takes neither the thread nor a lock in a known state with it, and by database."""


def _listener() -> _Listener:
    key = os.getpid(), database()
    found = _listeners.get(key)
    if found is None:
        with deadline.shielded():  # starting a thread waits for a lock that is written in Python
            found = _listeners.setdefault(key, _Listener(key[1]))
            found.begin()
    return found


def forget() -> None:
    """Keep nothing, and stop listening until the next use; for tests."""
    for listener in _listeners.values():
        listener.stop()
    _listeners.clear()
