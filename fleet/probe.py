"""What stands in each queue and what flowed through it lately: one round trip for all queues, whatever their length.

One script reads the queues (`probe.lua`), in one instant of the server; what processes counted in the last night
minutes (`fleet.flow`) comes with it in the same trip. Ages are by the server's clock and the senders' timestamps.

Not guaranteed: that the first messages of a queue are its oldest (they are the next), or that a worker whose host's
clock is off counts as a consumer. What lies fetched in a worker of ours is known to a second, in one of stock not at
all. A key that is not of its type hides its own figure and is named. Raises what redis-py raises when Redis does not
answer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import redis

from fleet import flow, wire
from fleet.broker import FleetBroker, keys
from fleet.broker.reaper import ALONE
from fleet.clock import clock
from fleet.flow import MINUTE, Counted, QueueFlow

WINDOW = 5 * MINUTE
"""Night time that rates and lags are of."""
GROWTH = 10 * MINUTE
"""Night time in which a dead letter is new: longer than the gap between two looks."""
_ALIVE = timedelta(seconds=30)  # real
_COMPARED = 3 * WINDOW  # an older reading says nothing of the rate now


@dataclass(frozen=True)
class QueueReading:
    """Counts of messages; suspects are among the `ready`. Ages and lags are night time.

    `oldest_age` is the age of the oldest *due* message that nobody began, from when it was due; one that lies fetched
    in a worker process counts too. The lags, from due to the start of a
    body, the rates (messages a night minute) and `dead_growth` (that died) are of the last night minutes; `consumers`
    are the fleet's worker processes that serve the queue and lived lately; `started` and `ended` are the counts that
    rates are of. What is not known is None. `broken` says which key is not of its type, so that its count is 0 here.
    """

    queue: str
    ready: int
    delayed: int
    in_flight: int
    dead: int
    oldest_age: timedelta | None
    lag_p50: timedelta | None = None
    lag_p95: timedelta | None = None
    lag_worst: timedelta | None = None
    rate_in: float | None = None
    rate_out: float | None = None
    dead_growth: int | None = None
    consumers: int | None = None
    broken: str | None = None
    started: int | None = None
    ended: int | None = None

    @property
    def left(self) -> int:
        """Messages that have not ended."""
        return self.ready + self.delayed + self.in_flight


@dataclass(frozen=True)
class Look:
    """One look: `at` is real time by the server's clock, `counted` is what processes counted in `window`, real."""

    at: datetime
    queues: list[QueueReading]
    counted: Counted
    window: timedelta


def read(broker: FleetBroker | None = None, queues: Iterable[str] | None = None) -> list[QueueReading]:
    """Read the given queues, by default every queue declared in this process, in order of name."""
    if broker is None:
        from fleet.app import process_broker

        broker = process_broker()
    return look(broker, broker.get_declared_queues() if queues is None else queues).queues


def look(broker: FleetBroker, queues: Iterable[str], client: redis.Redis | None = None) -> Look:
    """Read the given queues, over `client` if there is one."""
    names = sorted(queues)
    ns, now = broker.namespace, clock.now()
    last = flow.minute_of(now)
    minutes = range(last - WINDOW // MINUTE + 1, last + 1)
    asked = [keys.history(ns), keys.heartbeats(ns), keys.workers(ns), keys.prefetched(ns)]
    for name in names:
        asked += keys.of_probing(ns, name)
    back = [wire.duration_ms(clock.to_real(span)) for span in (GROWTH, WINDOW)]
    script = broker.own_scripts.probe
    answer, *hashes = _in_one_trip(
        client or broker.client,
        script.sha,
        str(script.script),
        [len(asked), *asked, *back, wire.duration_ms(_ALIVE)],
        [keys.flow(ns, minute) for minute in minutes],
    )
    counted = flow.summed(hashes)
    window = now - wire.from_ms(minutes[0] * 60_000)
    consumers = _consumers(answer[2], answer[3])
    seen = _Seen(wire.from_ms(answer[0]), _moment(answer[1]), consumers, flow.prefetched(answer[4]), counted, window)
    found = [seen.reading(name, row) for name, row in zip(names, answer[5:], strict=True)]
    return Look(seen.at, found, counted, clock.to_real(window))


def _in_one_trip(client: redis.Redis, sha: str, script: str, words: list[Any], hashes: list[str]) -> tuple[Any, ...]:
    for _ in range(2):
        with client.pipeline(transaction=False) as pipe:
            pipe.evalsha(sha, *words)
            for key in hashes:
                pipe.hgetall(key)
            found = pipe.execute(raise_on_error=False)
        if not isinstance(found[0], redis.exceptions.NoScriptError):
            break
        client.script_load(script)
    for one in found[:1] + [one for one in found[1:] if not isinstance(one, redis.ResponseError)]:
        if isinstance(one, Exception):
            raise one
    return (found[0], *({} if isinstance(one, redis.ResponseError) else one for one in found[1:]))


@dataclass(frozen=True)
class _Seen:
    """What all queues have in common in one look; `window` is night time."""

    at: datetime
    before: tuple[datetime, Mapping[str, int]] | None
    consumers: Counter[str]
    prefetched: Mapping[str, datetime]
    counted: Counted
    window: timedelta

    def reading(self, name: str, row: list[Any]) -> QueueReading:
        broken, counts, first_due, *bodies = row
        waiting, suspects, held, stock, due, dead, new_dead = (count or 0 for count in counts)
        ready = waiting + suspects
        flowed = self.counted.queues.get(name)
        known = flowed or (QueueFlow() if self.consumers[name] else None)
        left = held + stock
        rate_out = None if known is None else known.ended / (self.window / MINUTE)
        return QueueReading(
            name,
            ready,
            delayed=stock + due,
            in_flight=max(0, held - ready - due),
            dead=dead,
            oldest_age=self._oldest(name, first_due, bodies),
            lag_p50=flowed.quantile(0.5) if flowed else None,
            lag_p95=flowed.quantile(0.95) if flowed else None,
            lag_worst=flowed.quantile(1.0) if flowed else None,
            rate_in=self._rate_in(name, left, rate_out),
            rate_out=rate_out,
            dead_growth=new_dead,
            consumers=self.consumers[name],
            broken=broken.decode(errors="replace") or None,
            started=known.started if known else None,
            ended=known.ended if known else None,
        )

    def _rate_in(self, name: str, left: int, rate_out: float | None) -> float | None:
        """What ended, and by how much more or less is left than was."""
        if self.before is None or rate_out is None or name not in self.before[1]:
            return None
        then, counts = self.before
        passed = (self.at - then) * clock.rate
        if not timedelta(0) < passed <= _COMPARED:
            return None
        return max(0.0, rate_out + (left - counts[name]) / (passed / MINUTE))

    def _oldest(self, name: str, first_due: bytes | None, groups: Sequence[list[bytes]]) -> timedelta | None:
        ages = [self._age(wire.due_at(body)) for body in (*groups[0], *groups[1])]
        ages.append(self._age(self.prefetched.get(name)))
        # What is delayed has no age before it is due; overdue, nobody is there to promote it.
        if first_due is not None:
            ages.append(self._age(wire.instant(int(float(first_due))), overdue=True))
        ages += [self._age(wire.due_at(body), overdue=True) for body in groups[2]]
        return max((age for age in ages if age is not None), default=None)

    def _age(self, due: datetime | None, *, overdue: bool = False) -> timedelta | None:
        if due is None or (overdue and due > self.at):
            return None
        return max(timedelta(0), self.at - due) * clock.rate


def _moment(entries: list[Any]) -> tuple[datetime, Mapping[str, int]] | None:
    """When the reading to compare with was taken (real), and what was left then a queue."""
    try:
        (id, fields) = entries[0]
        counts = json.loads(dict(zip(fields[::2], fields[1::2], strict=True))[b"queues"])
        return wire.from_ms(int(id.split(b"-")[0])), {name: sum(row[:3]) for name, row in counts.items()}
    except (IndexError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _consumers(ids: Iterable[bytes], serving: Iterable[bytes | None]) -> Counter[str]:
    """Worker processes a queue; who runs suspects takes no others."""
    found: Counter[str] = Counter()
    for id, queues in zip(ids, serving, strict=False):
        if queues is not None and not id.startswith(ALONE.encode()):
            found.update(json.loads(queues))
    return found
