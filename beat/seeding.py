"""Begins the chains that are allowed and not there, in the beat's ordinary pass, behind the slots.

It asks each second what elastic entries may run, whoever decided it: the balancer's lease, or the cron slot's level
where there is none. An entry whose allowance changed, or that was not seeded for a night minute, is seeded; one that
the balancer saw empty is not. So chains begin within a second, also where the balancer's thread is dead.

Its client is its own, with a timeout. Not guaranteed: that a chain which ended is there again before a night minute has
passed. On failure: said once an entry (`chains_not_seeded`), tried again at the next pass; slots come first, and go on.
One whose queue is broken does not keep the others from their chains.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import redis

from beat.firing import PassesOver
from beat.leader import Leader
from fleet.allowance import Allowance, allowances
from fleet.broker import FleetBroker
from fleet.chains import seed
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.flow import MINUTE
from fleet.logs import get_logger

log = get_logger(__name__)

_ALL = "all"
_AWAY = (redis.ConnectionError, redis.TimeoutError)


class Seeding:
    """What passes over the slots, and seeds chains behind each ordinary pass while `leader` leads."""

    def __init__(
        self, slots: PassesOver, broker: FleetBroker, client: redis.Redis, leader: Leader, schedule: Iterable[Entry]
    ) -> None:
        self._slots, self._broker, self._client, self._leader = slots, broker, client, leader
        self._entries = [entry for entry in schedule if entry.elastic is not None]
        self._seeded: dict[str, tuple[int, datetime]] = {}
        self._failing: set[str] = set()

    def pass_over(self, names: Iterable[str] | None = None) -> None:
        """Raises what the pass over the slots raises."""
        self._slots.pass_over(names)
        if names is not None or not self._entries or not self._leader.leads():
            return
        now = clock.now()
        try:
            for entry, granted in allowances(self._broker, self._entries, now, self._client):
                self._seed(entry, granted, now)
            self._failing.discard(_ALL)
        except Exception as error:  # whatever it is, the slots go on
            self._say(_ALL, error)

    def _seed(self, entry: Entry, granted: Allowance, now: datetime) -> None:
        places, at = self._seeded.get(entry.name, (0, None))
        # Behind a clock that was set back the last one lies ahead; how long ago it was is not known.
        if at is not None and granted.places == places and timedelta(0) <= now - at < MINUTE:
            return
        try:
            wanted = granted.places if granted.backlog != 0 else 0
            began = seed(self._broker, entry, wanted, self._client)
        except _AWAY:
            raise  # the next one's would only cost its timeout as well
        except Exception as error:  # its queue or its actor is broken; the others' are not
            self._say(entry.name, error)
            return
        self._failing.discard(entry.name)
        self._seeded[entry.name] = (granted.places, now)
        if began:
            log.info("chains_began", entry=entry.name, count=began, allowed=granted.places, reason=granted.reason)

    def _say(self, entry: str, error: Exception) -> None:
        if entry not in self._failing:
            log.error("chains_not_seeded", entry=entry, error=repr(error))
        self._failing.add(entry)
