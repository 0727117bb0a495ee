"""A thread of every lane's supervisor that relays the outbox, in real time; together they make about a pass a second.

Whoever finds the turn free in Redis takes it, relays what is due (`fleet.relay`), and closes its connection again.
There is no leader: any one supervisor that lives is enough, and one that dies leaves nothing behind. Why no entry of
the schedule and no worker does this: `docs/decisions/0008-supervisors-relay-the-outbox.md`.

Not guaranteed: that one pass is over before another supervisor begins the next; they share the rows. On failure: Redis
or PostgreSQL away is said once, and tried again every second.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import redis

from fleet.broker import FleetBroker, keys
from fleet.logs import brief, get_logger

if TYPE_CHECKING:
    from sqlalchemy import Engine

log = get_logger(__name__)

TURN = timedelta(milliseconds=800)  # real time; with the wait below a pass begins at most 1.3 s after the last one
_LOOKS_EVERY_SECONDS = 0.5


class Relaying(threading.Thread):
    """Relays until stopped; without a database it does nothing."""

    def __init__(self, broker: FleetBroker, database_url: str | None) -> None:
        super().__init__(name="relaying", daemon=True)
        self._broker, self._url = broker, database_url
        self._engine: Engine | None = None
        self._stopped = threading.Event()
        self._said = False

    def run(self) -> None:
        while self._url and not self._stopped.wait(_LOOKS_EVERY_SECONDS):
            try:
                if self._has_turn():
                    self._pass()
            except Exception as error:  # Redis or PostgreSQL, in one of the many ways that each has
                if not self._said:
                    log.error("outbox_not_relayed", error=brief(error), tries_again_every=str(TURN))
                self._said = True

    def _has_turn(self) -> bool:
        key, most = keys.relay_turn(self._broker.namespace), int(TURN.total_seconds() * 1000)
        try:
            return bool(self._broker.client.set(key, "1", nx=True, px=most))
        except redis.RedisError as error:
            log.debug("relay_without_turn", error=str(error))  # the pump says that Redis is lost
            return False

    def _pass(self) -> None:
        from fleet.relay import relay  # SQLAlchemy, in a process that may never have the turn

        relayed = relay(self._database(), self._broker)
        if relayed.sent:
            log.warning("outbox_relayed", rows=relayed.sent)
        if self._said:
            log.warning("outbox_relayed_again")
        self._said = False

    def _database(self) -> Engine:
        from fleet.storage.engine import unpooled

        if self._engine is None:
            assert self._url is not None
            self._engine = unpooled(self._url)
        return self._engine

    def stop(self) -> None:
        """Stop; a pass under way ends within a moment, or with the process."""
        self._stopped.set()
        if self.is_alive():
            self.join(1.0)
