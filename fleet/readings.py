"""Readings of all queues, lanes and actors, kept in Redis with when they were taken; a stale one says so.

The leading beat takes one each night minute, `check_queue_health` another; the newest stands. One a night minute is
kept in short for a day, for curves and for the rate at which messages come.

Not guaranteed: that a reading is of now; ask `stale`. The figures of lanes and actors are statistics (`fleet.flow`).
Raises what redis-py raises when Redis does not answer; a reading that another version wrote and this one cannot read is
none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

import redis

from fleet import probe, wire
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.flow import Counted, minute_of
from fleet.probe import QueueReading

STALE_AFTER = timedelta(seconds=180)
"""Night time from which on a reading says nothing about now."""
_KEPT, _HISTORY_KEPT, _MOMENTS = timedelta(days=1), timedelta(days=2), 1_500
_AGES = ("oldest_age", "lag_p50", "lag_p95", "lag_worst")


@dataclass(frozen=True)
class LaneReading:
    """A lane in the last minutes: cores its processes used (None if not counted), messages held, worker processes.

    `cpu` is what they used in all (real), as it was counted.
    """

    cpu_cores: float | None
    in_flight: int
    consumers: int
    cpu: timedelta | None = None


@dataclass(frozen=True)
class ActorReading:
    """What an actor's bodies that ended in the last night minutes took, in real time."""

    jobs: int
    cpu: timedelta
    wall: timedelta


@dataclass(frozen=True)
class SweepReading:
    """Of a sweep in the last night minutes: how many were cut, how many rows failed."""

    cut: int
    failed: int


@dataclass(frozen=True)
class ExpiredReading:
    """Of an entry in the last night minutes: messages of its slots that came too late, and messages these had sent."""

    slots: int
    rest: int


@dataclass(frozen=True)
class Readings:
    """One reading; `at` is night time by the server's clock, `by` the role that took it (`beat`, `housekeeping`).

    `expired` and `sweeps` are of what was counted lately; `taken` is when each role took its last reading, as far as
    that was read from Redis.
    """

    at: datetime
    by: str
    queues: Mapping[str, QueueReading]
    lanes: Mapping[str, LaneReading]
    actors: Mapping[str, ActorReading]
    expired: Mapping[str, ExpiredReading] = field(default_factory=dict)
    sweeps: Mapping[str, SweepReading] = field(default_factory=dict)
    taken: Mapping[str, datetime] = field(default_factory=dict, compare=False)
    ahead: timedelta = field(default=timedelta(0), compare=False, repr=False)
    """By how much the server's clock is ahead of this process's, in night time."""

    def now(self) -> datetime:
        """The night instant by the clock that the reading was stamped by."""
        return clock.now() + self.ahead

    def age(self) -> timedelta:
        """How old it is now, in night time."""
        return max(timedelta(0), self.now() - self.at)

    @property
    def stale(self) -> bool:
        return self.age() > STALE_AFTER


@dataclass(frozen=True)
class Moment:
    """A reading of the past, in short: ready, delayed, in flight, dead and the oldest's age of each queue."""

    at: datetime
    queues: Mapping[str, QueueReading]


def take(broker: FleetBroker, by: str, client: redis.Redis | None = None) -> Readings:
    """Read every queue of this process's application, and store it unless a newer reading stands; two round trips.

    `client` is used in place of the broker's if it is given. `taken` of what is returned is empty but for `by`.
    """
    client = client or broker.client
    names = sorted({*broker.lanes, *broker.get_declared_queues()})
    seen = probe.look(broker, names, client)
    queues = {reading.queue: reading for reading in seen.queues}
    at = clock.to_night(seen.at)
    taken = Readings(
        at,
        by,
        queues,
        _lanes(broker, queues, seen.counted, seen.window),
        {name: _actor(counts) for name, counts in seen.counted.of("a").items()},
        {
            name: ExpiredReading(counts["expired"], counts["expired_rest"])
            for name, counts in seen.counted.of("e").items()
        },
        {name: SweepReading(counts["cut"], counts["failed"]) for name, counts in seen.counted.of("s").items()},
        {by: at},
        at - clock.now(),
    )
    _store(broker, client, taken, wire.to_ms(seen.at))
    return taken


def _store(broker: FleetBroker, client: redis.Redis, taken: Readings, at_ms: int) -> None:
    kept = [max(50, wire.duration_ms(clock.to_real(span))) for span in (_KEPT, _HISTORY_KEPT)]
    broker.own_scripts.store_reading(
        keys=[key(broker.namespace) for key in (keys.readings, keys.history, keys.prefetched, keys.workers)],
        args=[at_ms, minute_of(taken.at), taken.by, _written(taken), _in_short(taken), *kept, _MOMENTS],
        client=client,
    )


def latest(broker: FleetBroker, client: redis.Redis | None = None) -> Readings | None:
    """The newest reading that was stored, None if there is none; one round trip."""
    with (client or broker.client).pipeline(transaction=False) as pipe:
        pipe.time()
        pipe.hgetall(keys.readings(broker.namespace))
        (seconds, micros), stored = pipe.execute()
    server = wire.from_ms(int(seconds) * 1000 + int(micros) // 1000)
    ahead = (server - clock.real_now()) * clock.rate
    try:
        told = json.loads(stored[b"reading"])
        taken = {
            name.decode().removeprefix("by:"): clock.to_night(wire.from_ms(int(at)))
            for name, at in stored.items()
            if name.startswith(b"by:")
        }
        return _read(told, clock.to_night(wire.from_ms(int(stored[b"at"]))), taken, ahead)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def history(broker: FleetBroker, since: datetime) -> list[Moment]:
    """The readings since a night instant, one a night minute at most, oldest first."""
    first = wire.to_ms(clock.to_real_instant(since))
    found: Any = broker.client.xrange(keys.history(broker.namespace), min=max(0, first))
    moments = []
    for id, told in found:
        at = clock.to_night(wire.from_ms(int(id.split(b"-")[0])))
        rows = json.loads(told[b"queues"])
        moments.append(Moment(at, {name: _reading_in_short(name, *row) for name, row in rows.items()}))
    return moments


def _lanes(
    broker: FleetBroker, queues: Mapping[str, QueueReading], counted: Counted, window: timedelta
) -> dict[str, LaneReading]:
    lanes = {lane.name: lane for lane in broker.lanes.values()}
    used = counted.of("l")
    return {
        name: LaneReading(
            used[name]["cpu_us"] / (window / timedelta(microseconds=1)) if name in used else None,
            sum(queues[queue].in_flight for queue in lane.queues if queue in queues),
            max((queues[queue].consumers or 0 for queue in lane.queues if queue in queues), default=0),
            timedelta(microseconds=used[name]["cpu_us"]) if name in used else None,
        )
        for name, lane in lanes.items()
    }


def _actor(counts: Mapping[str, int]) -> ActorReading:
    cpu, wall = (timedelta(microseconds=counts[figure]) for figure in ("cpu_us", "wall_us"))
    return ActorReading(counts["jobs"], cpu, wall)


def _written(taken: Readings) -> str:
    told = {
        "by": taken.by,
        "queues": [_plain(one) for one in taken.queues.values()],
        "lanes": {name: _plain(one) for name, one in taken.lanes.items()},
        "actors": {name: _plain(one) for name, one in taken.actors.items()},
        "expired": {name: _plain(one) for name, one in taken.expired.items()},
        "sweeps": {name: _plain(one) for name, one in taken.sweeps.items()},
    }
    return json.dumps(told, separators=(",", ":"))


def _plain(one: Any) -> dict[str, Any]:
    """Its fields that are known, durations in seconds."""
    values = {name: value for name, value in asdict(one).items() if value is not None}
    return {n: v.total_seconds() if isinstance(v, timedelta) else v for n, v in values.items()}


def _in_short(taken: Readings) -> str:
    rows = {
        name: [
            *(one.ready, one.delayed, one.in_flight, one.dead),
            None if one.oldest_age is None else round(one.oldest_age.total_seconds()),
        ]
        for name, one in taken.queues.items()
    }
    return json.dumps(rows, separators=(",", ":"))


def _reading_in_short(
    name: str, ready: int, delayed: int, in_flight: int, dead: int, oldest: float | None
) -> QueueReading:
    return QueueReading(name, ready, delayed, in_flight, dead, _span(oldest))


def _read(told: dict[str, Any], at: datetime, taken: Mapping[str, datetime], ahead: timedelta) -> Readings:
    queues = [_made(QueueReading, one, _AGES, missing={"oldest_age": None}) for one in told["queues"]]
    return Readings(
        at,
        told["by"],
        {one.queue: one for one in queues},
        {name: _made(LaneReading, one, ("cpu",), {"cpu_cores": None}) for name, one in told["lanes"].items()},
        {name: _made(ActorReading, one, ("cpu", "wall")) for name, one in told["actors"].items()},
        {name: _made(ExpiredReading, one) for name, one in told["expired"].items()},
        {name: _made(SweepReading, one) for name, one in told["sweeps"].items()},
        taken,
        ahead,
    )


def _made(kind: Any, told: dict[str, Any], spans: Iterable[str] = (), missing: Mapping[str, Any] | None = None) -> Any:
    """One of this kind, of the fields that this version knows."""
    known = {one.name: told[one.name] for one in fields(kind) if one.name in told}
    return kind(**{**(missing or {}), **known, **{name: _span(known[name]) for name in spans if name in known}})


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
