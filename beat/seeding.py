"""Begins the chains that are allowed and not there, in the beat's ordinary pass, behind the slots.

It asks each second what elastic entries may run, whoever decided it: the balancer's lease, or the cron slot's level
where there is none. An entry whose allowance changed, or that was not seeded for a night minute, is seeded; one that
the balancer saw empty is not. So chains begin within a second, also where the balancer's thread is dead.

Its client is its own, with a timeout. Not guaranteed: that a chain which ended is there again before a night minute has
passed. On failure: said once (`chains_not_seeded`), tried again at the next pass; slots come first, and go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import redis

from beat.firing import PassesOver
from beat.leader import Leader
from fleet.allowance import allowances
from fleet.broker import FleetBroker
from fleet.chains import seed
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.flow import MINUTE
from fleet.logs import get_logger

log = get_logger(__name__)


class Seeding:
    """What passes over the slots, and seeds chains behind each ordinary pass while `leader` leads."""

    def __init__(
        self, slots: PassesOver, broker: FleetBroker, client: redis.Redis, leader: Leader, schedule: Iterable[Entry]
    ) -> None:
        self._slots, self._broker, self._client, self._leader = slots, broker, client, leader
        self._entries = [entry for entry in schedule if entry.elastic is not None]
        self._seeded: dict[str, tuple[int, datetime]] = {}
        self._failed = False

    def pass_over(self, names: Iterable[str] | None = None) -> None:
        """Raises what the pass over the slots raises."""
        self._slots.pass_over(names)
        if names is not None or not self._entries or not self._leader.leads():
            return
        try:
            self._seed()
            self._failed = False
        except Exception as error:  # whatever it is, the slots go on
            if not self._failed:
                log.error("chains_not_seeded", error=repr(error))
            self._failed = True

    def _seed(self) -> None:
        now = clock.now()
        for entry, granted in allowances(self._broker, self._entries, now, self._client):
            places, at = self._seeded.get(entry.name, (0, None))
            if at is not None and granted.places == places and now - at < MINUTE:
                continue
            self._seeded[entry.name] = (granted.places, now)
            if (
                granted.places
                and granted.backlog != 0
                and (began := seed(self._broker, entry, granted.places, self._client))
            ):
                log.info("chains_began", entry=entry.name, count=began, allowed=granted.places, reason=granted.reason)
