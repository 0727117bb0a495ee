"""What the balancer knows of an elastic entry at a minute of its night, out of the fleet's readings and its backlog.

- `taken`, whether work is in flight, and whether anything moves: the newest reading (`fleet.readings`).
- how long people waited for their jobs to start (the queues that lanes declare as `people`), at worst in the last three
  minutes; a job that waits now counts as it is. And the cores that lanes without elastic work used in the minute that
  has ended: both from what processes counted (`fleet.flow`).
- what is left: the entry's own count. What a row costs a chain: what full chunks took (`fleet.elastic`), smoothed,
  without what they waited for a core, which more chains would only make longer. And the share of a core that a chain
  uses, by the same measures. How many chunks ended early stands there too.
- what people hold of a quota: its leases (`fleet.quota`).

All durations are turned into the night's. Not guaranteed: that the cores are this machine's own where lanes run on more
than one host; say so in `BalancerRules.cores`. That a chain's share is all it uses: what a chunk starts elsewhere, in
another thread or process, is not measured. That waits for a core are told: Linux tells them. On failure: raises what
redis-py, the count or the database raises.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import redis

from beat.balancer import BalancerRules, Places, Processors, Reading
from fleet import flow, quota, readings, wire
from fleet.app import backlog_of
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.declarations import Entry, Lane
from fleet.flow import MINUTE, Counted, minute_of
from fleet.readings import Readings
from fleet.window import elastic_of, window

_NEVER = wire.from_ms(0)
_WAITED_MINUTES = 4  # the one that has just begun, and three
_NICE_ENOUGH = 15  # a weight of a twentieth: such a lane takes what nobody else wants
_MEASURED = ("rows", "cpu_us", "wall_us", "waited_us", "early")
_NOTHING = timedelta(0), 1.0  # a whole core until it was measured
_LEAST_SHARE = 0.05  # cores; also a chain that only waits takes some of its lane's


@dataclass(frozen=True)
class Fleet:
    """What one look at the fleet says to all entries."""

    now: datetime
    taken: datetime
    in_flight: bool
    counters: str
    wait: timedelta
    others: float


class Observer:
    """Looks over `client`; remembers what rows cost, and what chains use."""

    def __init__(self, broker: FleetBroker, client: redis.Redis, rules: BalancerRules) -> None:
        self._broker, self._client, self._rules = broker, client, rules
        self.cores = rules.cores or float(_own_cores())
        self._learned: dict[str, tuple[timedelta, float]] = {}  # entry -> cost of a row, share of a core
        self._measures: dict[str, dict[str, int]] = {}

    def begin_anew(self) -> None:
        """Leave out the chunks that ended early while somebody else decided, or nobody: they say nothing of now."""
        for told in self._measures.values():
            told.pop("early", None)

    def look(self) -> Fleet:
        """One look at the fleet."""
        latest = readings.latest(self._broker, self._client)
        now = clock.now() if latest is None else latest.now()
        minute = minute_of(now)
        lately, ended = self._counted(range(minute - _WAITED_MINUTES + 1, minute + 1)), self._counted([minute - 1])
        used = {
            name: counts["cpu_us"] / (clock.to_real(MINUTE) / timedelta(microseconds=1))
            for name, counts in ended.of("l").items()
        }
        elastic = {lane.name for lane in self._elastic_lanes()}
        return Fleet(
            now,
            _NEVER if latest is None else latest.at,
            latest is not None and any(queue.in_flight for queue in latest.queues.values()),
            _digest(latest),
            max(self._waited(lately), self._waits(latest)),
            sum(cores for name, cores in used.items() if name not in elastic),
        )

    def read(self, entry: Entry, fleet: Fleet) -> Reading:
        """What is known of an entry. Raises what its count raises."""
        elastic = elastic_of(entry)
        backlog, took = max(0, int(backlog_of(entry)())), self._took(entry)
        return Reading(
            now=fleet.now,
            taken=fleet.taken,
            window=window(entry, fleet.now),
            cap=elastic.cap,
            backlog=backlog,
            cost=self._cost(entry, took),
            wait=fleet.wait,
            in_flight=fleet.in_flight,
            counters=fleet.counters,
            room=self._room(entry, fleet),
            ended_early=took["early"],
        )

    def blind(self, entry: Entry, now: datetime) -> Reading:
        """What is known of an entry while nothing can be read."""
        room = Processors(0.0, 0.0, 0.0)
        span = timedelta(0)
        return Reading(now, _NEVER, window(entry, now), elastic_of(entry).cap, 0, span, span, False, "", room)

    def share(self, entry: Entry) -> float:
        """The cores that a running chain of an entry uses; a whole one until it was measured."""
        return max(_LEAST_SHARE, self._learned.get(entry.name, _NOTHING)[1])

    def learned(self, entry: Entry) -> dict[str, float]:
        """What was measured of an entry, for the leader that comes after; empty before it was."""
        if entry.name not in self._learned:
            return {}
        cost, share = self._learned[entry.name]
        return {"cost": cost.total_seconds(), "share": share}

    def recall(self, entry: Entry, learned: Mapping[str, float]) -> None:
        """Take over what the leader before had measured; of anything else nothing."""
        with suppress(TypeError, KeyError, ValueError, OverflowError):
            self._learned[entry.name] = timedelta(seconds=learned["cost"]), min(1.0, learned["share"])

    def _room(self, entry: Entry, fleet: Fleet) -> Processors | Places:
        name = elastic_of(entry).quota
        if name is not None:
            of = self._broker.quotas[name]
            return Places(of.places, of.reserve, quota.usage(self._broker, of, self._client).people)
        lane = self._lane(entry)
        niced = lane is not None and lane.nice >= _NICE_ENOUGH
        reserve = 0.0 if niced else self._rules.reserve
        return Processors(self.cores, fleet.others, reserve, a_chain=self.share(entry))

    def _lane(self, entry: Entry) -> Lane | None:
        return self._broker.lanes.get(self._broker.get_actor(entry.actor).queue_name)

    def _elastic_lanes(self) -> list[Lane]:
        lanes = [self._lane(entry) for entry in self._broker.entries.values() if entry.elastic]
        return [lane for lane in lanes if lane is not None]

    def _counted(self, minutes: Any) -> Counted:
        with self._client.pipeline(transaction=False) as pipe:
            for minute in minutes:
                pipe.hgetall(keys.flow(self._broker.namespace, minute))
            return flow.summed(pipe.execute())

    def _people(self) -> set[str]:
        """Not those of a lane of elastic work: its uploads are fetched before any chunk, and wait for one another."""
        elastic = {lane.name for lane in self._elastic_lanes()}
        lanes = [lane for lane in self._broker.lanes.values() if lane.name not in elastic]
        return {queue for lane in lanes for queue in lane.people}

    def _waited(self, counted: Counted) -> timedelta:
        """The worst start of people's jobs: the lower bound of its bucket, which it certainly waited."""
        lags = [max(of.lags) for name, of in counted.queues.items() if name in self._people() and of.lags]
        return max((flow.upper(place - 1) for place in lags if place > 0), default=timedelta(0))

    def _waits(self, latest: Readings | None) -> timedelta:
        if latest is None:
            return timedelta(0)
        ages = [queue.oldest_age for name, queue in latest.queues.items() if name in self._people()]
        return max((age for age in ages if age is not None), default=timedelta(0))

    def _took(self, entry: Entry) -> dict[str, int]:
        """What its chunks took since the last look; at the first one in all, unless what they took is known. Of how
        many ended early nothing at the first one, nor at the first since it began anew."""
        found: Any = self._client.hgetall(keys.measures(self._broker.namespace, entry.name))
        told = {"early": 0} | {name.decode(): int(value) for name, value in found.items()}
        known = told if entry.name in self._learned else {}  # of the leader before: it measured what stands there
        before = {"early": told["early"]} | self._measures.get(entry.name, known)
        self._measures[entry.name] = told
        if any(told.get(name, 0) < value for name, value in before.items()):
            before = {}
        return {name: told.get(name, 0) - before.get(name, 0) for name in _MEASURED}

    def _cost(self, entry: Entry, took: Mapping[str, int]) -> timedelta:
        """What a row costs a chain, by what chunks took since the last look; 0 while that is not known."""
        own = took["wall_us"] - took["waited_us"]
        if took["rows"] > 0 and own > 0:
            row, used = timedelta(microseconds=own / took["rows"]) * clock.rate, min(1.0, took["cpu_us"] / own)
            cost, share = self._learned.get(entry.name, (row, used))
            more = self._rules.smoothing
            self._learned[entry.name] = cost + more * (row - cost), share + more * (used - share)
        return self._learned.get(entry.name, _NOTHING)[0]


def _digest(latest: Readings | None) -> str:
    """The same for two readings in which nothing moved: of counts alone, since ages and rates move by themselves."""
    if latest is None:
        return ""
    counts = [
        sorted((n, q.ready, q.delayed, q.in_flight, q.dead, q.started, q.ended) for n, q in latest.queues.items()),
        sorted((name, lane.cpu) for name, lane in latest.lanes.items()),
        sorted((name, actor.jobs, actor.cpu) for name, actor in latest.actors.items()),
    ]
    return sha256(repr(counts).encode()).hexdigest()[:16]


def _own_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
