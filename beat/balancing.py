"""Decides each elastic entry's allowance once a night minute while this replica leads, from a thread of its own.

A minute: look at the fleet, count each entry's backlog, decide (`beat.balancer`), and have one script set the lease and
write the decision down (`allow.lua`), which checks token and epoch: who was deposed meanwhile sets nothing. A decision
is written down when it changed, every ten minutes, and behind what a person did. Entries are decided in the schedule's
order; cores that one may take by its allowance are taken for the next, so that none is granted twice.

What the rule remembers, and what was measured of the entry, travels in the lease: a replica that takes the lead goes on
where the last one was, while that one's lease stands. Where it has lapsed, the cron slot's level is what runs, and that
is where it begins, with an empty memory: so it neither cuts nor adds at once.

What fails, and what follows. Its client is its own, with a timeout, and so is its thread: nothing that it waits for
holds up firing. If the thread dies or hangs, leases lapse and the cron slot stands. Where a backlog cannot be counted,
or Redis refuses what is an entry's own (a key of another type), that entry is blind and the others are decided; where
Redis does not answer, nothing is set. Said once: `balancer_blind`, `balancer_sees_again`. While the server's clock is
doubted (`beat.now`) nobody decides: times of the night are read off it, and what stands might never lapse by it, so
leases are taken away.

Not guaranteed: a decision in each minute; three may be left out before a lease lapses.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any

import redis

from beat.balancer import BalancerRules, Processors, Reading, State, decide
from beat.leader import Leader
from beat.now import Now
from beat.observing import Fleet, Observer
from beat.telling import numbers, told
from fleet import by_hand, metrics, wire
from fleet.allowance import DECISIONS_KEPT, LEASE, Allowance, Hold, holds, last_decisions, switched_off
from fleet.app import backlog_of
from fleet.backlogs import bound_statements
from fleet.broker import FleetBroker, keys
from fleet.by_hand import Pause
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.flow import MINUTE
from fleet.logs import get_logger
from fleet.window import elastic_of

log = get_logger(__name__)

_SCRIPT = Path(__file__).parent / "allow.lua"
_BEHIND = timedelta(seconds=20)  # night: the minute's reading is taken by then, and what processes counted is flushed
_SAID_EVERY = timedelta(minutes=9.5)  # night: the tenth minute, also where it comes a moment early
_LEAST_SECONDS = 0.05
_AWAY = (redis.ConnectionError, redis.TimeoutError)
_NO_LEASE = "{}"
_REMEMBERED = ("places", "calm", "others", "same", "counters")


@dataclass
class _Minute:
    """What an entry is decided by in a minute: `stopped` by a person, `places` as they are allowed so far."""

    entry: Entry
    reading: Reading
    counted: bool
    state: State
    stopped: Hold | Pause | None
    places: int


class Balancing:
    """Decides while `leader` leads, from `start` to `stop`; does nothing where no entry is elastic."""

    def __init__(
        self,
        broker: FleetBroker,
        client: redis.Redis,
        leader: Leader,
        schedule: Iterable[Entry],
        rules: BalancerRules,
        now: Now,
    ) -> None:
        self._broker, self._client, self._leader, self._now = broker, client, leader, now
        self._entries = [entry for entry in schedule if entry.elastic is not None]
        self._rules = rules.at_rate(clock.rate)
        self._observer = Observer(broker, client, self._rules)
        self._allow = client.register_script(_SCRIPT.read_text())
        self._states: dict[str, State] = {}
        self._written: dict[str, tuple[datetime, Allowance]] = {}
        self._blind: set[str] = set()
        self._epoch = 0
        self._lost = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="balancing", daemon=True)

    def start(self) -> None:
        for entry in self._entries:
            with suppress(Exception):  # said in the first minute
                backlog_of(entry)  # imported now: it may be the application's largest module, and slots are due
        if self._entries:
            self._thread.start()

    def stop(self) -> None:
        """Decide no more. A minute that is under way is left; it ends with the process."""
        self._stopped.set()

    def _run(self) -> None:
        bounded = False
        while not self._stopped.wait(_until_next()):
            if not self._leader.leads():
                continue
            try:
                if not bounded:
                    bound_statements()
                    bounded = True
                self.tick()
                self._lost = False
            except redis.RedisError as error:
                if not self._lost:
                    log.error("balancer_lost_redis", error=str(error))
                self._lost = True
            except Exception:  # one minute that breaks must not be the last
                log.exception("balancer_broke")

    def tick(self) -> None:
        """Decide every entry's allowance once. Raises what redis-py raises when Redis does not answer."""
        if self._now.doubt is not None:
            self._take_leases()
            return
        if switched_off(self._broker, self._client) is not None:
            self._epoch = 0
            return
        if self._epoch != self._leader.epoch:
            self._states, self._written, self._epoch = {}, {}, self._leader.epoch
            self._observer.begin_anew()
        fleet, names = self._observer.look(), [entry.name for entry in self._entries]
        held = holds(self._broker, names, self._client, fleet.now)
        paused = by_hand.paused(self._client, self._broker.namespace, names)
        minutes = [
            self._minute(entry, fleet, paused.get(entry.name) or held.get(entry.name)) for entry in self._entries
        ]
        for minute in minutes:
            try:
                self._decide(minute, [other for other in minutes if other is not minute])
            except redis.ResponseError as error:  # of a key of its own; the others' are in order
                reading = minute.reading
                minute.places = 0 if minute.stopped else reading.window.level(reading.cap, reading.now)
                metrics.balancer_tick("blind")
                self._see(minute.entry, f"its allowance cannot be set: {error!r}")

    def _take_leases(self) -> None:
        """Have the cron slots' levels stand at once; by the script that sets leases, so by one that lapses, and so that
        who was deposed meanwhile takes none of its successor's."""
        self._epoch = 0
        for entry in self._entries:
            args: list[Any] = [self._leader.token, self._leader.epoch, _NO_LEASE, 1, DECISIONS_KEPT]
            try:
                self._allow(keys=self._keys(entry), args=args)
            except redis.ResponseError as error:  # of a key of its own; the others' are in order
                self._see(entry, f"its allowance cannot be taken away: {error!r}")

    def _minute(self, entry: Entry, fleet: Fleet, stopped: Hold | Pause | None) -> _Minute:
        counted = True
        state = self._states.get(entry.name) or self._handed_over(entry)
        try:
            reading = self._observer.read(entry, fleet)
        except _AWAY:
            raise
        except Exception as error:  # whatever the application's count raises, or a key of another type
            reading, counted = self._observer.blind(entry, fleet.now), False
            self._see(entry, f"its backlog cannot be counted, or what its rows cost not be read: {error!r}")
        if state is None:
            state = State(places=reading.window.level(reading.cap, reading.now))
        return _Minute(entry, reading, counted, state, stopped, 0 if stopped else state.places)

    def _decide(self, minute: _Minute, others: Iterable[_Minute]) -> None:
        entry, reading, state, stopped = minute.entry, minute.reading, minute.state, minute.stopped
        if isinstance(reading.room, Processors):
            granted_cores = sum(self._takes(other) for other in others)
            reading = replace(reading, room=replace(reading.room, granted=granted_cores))
        granted, after = decide(reading, state, self._rules)
        # Nothing is decided by a reading outside the window, or while a person stops it; that says nothing of the eyes.
        sees = minute.counted and reading.now - reading.taken <= self._rules.stale and granted.reason != "blind"
        if stopped is not None:
            # It begins again from nothing: what would have been allowed meanwhile was not tried.
            granted, after = _stopped(stopped), State()
        minute.places = granted.places
        text = stopped.told if stopped else told(entry, granted, state.places, reading, self._rules, after)
        record = self._record(entry, granted, text, state, reading)
        answer: bytes = self._allow(keys=self._keys(entry), args=self._args(entry, granted, after, reading, record))
        if answer != b"done":
            log.info("balancer_stood_back", entry=entry.name, reason=answer.decode())
            self._epoch = 0
            return
        metrics.balancer_tick(granted.reason)
        self._states[entry.name] = after
        if sees:
            self._see(entry, None)
        elif granted.reason == "blind":
            self._see(entry, "readings are old, or nothing in them moves while work is in flight")
        if record:
            self._written[entry.name] = (reading.now, granted)
            log.info("balancer_decided", entry=entry.name, places=granted.places, reason=granted.reason, text=text)

    def _takes(self, minute: _Minute) -> float:
        """The cores that an entry's chains may take: no more chains than there are chunks left of what was counted."""
        elastic = elastic_of(minute.entry)
        if elastic.quota is not None:
            return 0.0
        chunks = ceil(minute.reading.backlog / elastic.chunk) if minute.counted else minute.places
        return min(minute.places, chunks) * self._observer.share(minute.entry)

    def _handed_over(self, entry: Entry) -> State | None:
        """The state of the leader before, out of its lease, which also says what it had measured; None if it lapsed."""
        try:
            raw: Any = self._client.get(keys.allowance(self._broker.namespace, entry.name))
            lease = json.loads(raw)
            state = State(**{name: lease["state"][name] for name in _REMEMBERED})
            if learned := lease.get("learned"):
                self._observer.recall(entry, learned)
            return state
        except (TypeError, ValueError, KeyError, redis.ResponseError):
            return None

    def _record(self, entry: Entry, granted: Allowance, text: str, state: State, reading: Reading) -> dict[str, Any]:
        at, before = self._written.get(entry.name, (None, None))
        changed = before is None or (before.places, before.reason) != (granted.places, granted.reason)
        if not changed and at is not None and reading.now - at < _SAID_EVERY and self._wrote_last(entry):
            return {}
        return {
            "at": wire.to_ms(reading.now),
            "places": granted.places,
            "reason": granted.reason,
            "text": text,
            "epoch": self._epoch,
            "numbers": json.dumps(numbers(granted, state.places, reading, self._rules)),
        }

    def _wrote_last(self, entry: Entry) -> bool:
        """Whether what is written down last is this leader's: a person's act may have come and gone within a minute."""
        last = last_decisions(self._broker, entry.name, 1, self._client)
        return bool(last) and last[0].epoch == self._epoch

    def _keys(self, entry: Entry) -> list[str]:
        ns = self._broker.namespace
        return [
            *(keys.leader(ns), keys.epoch(ns), keys.balance_off(ns)),
            *(keys.allowance(ns, entry.name), keys.decisions(ns, entry.name)),
        ]

    def _args(
        self, entry: Entry, granted: Allowance, state: State, reading: Reading, record: dict[str, Any]
    ) -> list[Any]:
        lease = {
            "places": granted.places,
            "reason": granted.reason,
            "until": wire.to_ms(reading.now + LEASE),
            "backlog": None if granted.reason == "blind" else reading.backlog,
            "state": {name: getattr(state, name) for name in _REMEMBERED},
            "learned": self._observer.learned(entry),
        }
        lasts = max(50, wire.duration_ms(clock.to_real(LEASE)))
        fields = [word for pair in record.items() for word in pair]
        return [self._leader.token, self._epoch, json.dumps(lease), lasts, DECISIONS_KEPT, *fields]

    def _see(self, entry: Entry, complaint: str | None) -> None:
        """Say once that an entry is blind, and once that it is no longer."""
        if complaint is not None and entry.name not in self._blind:
            self._blind.add(entry.name)
            log.error("balancer_blind", entry=entry.name, reason=complaint)
        elif complaint is None and entry.name in self._blind:
            self._blind.remove(entry.name)
            log.warning("balancer_sees_again", entry=entry.name)


def _stopped(stopped: Hold | Pause) -> Allowance:
    if isinstance(stopped, Hold):
        return Allowance(0, "held", stopped.until, fallback=False)
    return Allowance(0, "paused", None, fallback=False)


def _until_next() -> float:
    """Real seconds until the next night minute's decision."""
    now = clock.now()
    due = now.replace(second=0, microsecond=0) + _BEHIND
    return max(_LEAST_SECONDS, clock.to_real((due if due > now else due + MINUTE) - now).total_seconds())
