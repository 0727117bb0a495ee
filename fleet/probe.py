"""What stands in each queue: two round trips for all of them, whatever their length.

Not guaranteed: one instant for all figures. The counts of one queue are read together, its oldest age right after.
Raises what redis-py raises when Redis does not answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from fleet import wire
from fleet.broker import FleetBroker, keys
from fleet.clock import clock


@dataclass(frozen=True)
class QueueReading:
    """Counts of messages; suspects are among the `ready`. Ages and lags are night time.

    `oldest_age` is the age of the oldest *due* message, from when it was due. The lags, from due to the start of a
    body, the rates (messages a night minute) and `dead_growth` (that died) are of the last night minutes; `consumers`
    are the fleet's worker processes that serve the queue and lived lately. What is not known is None. `broken` says
    which key is not of its type, so that its count is 0 here.
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

    @property
    def left(self) -> int:
        """Messages that have not ended."""
        return self.ready + self.delayed + self.in_flight


def read(broker: FleetBroker | None = None, queues: Iterable[str] | None = None) -> list[QueueReading]:
    """Read the given queues, by default every queue declared in this process, in order of name."""
    if broker is None:
        from fleet.app import process_broker

        broker = process_broker()
    names = sorted(broker.get_declared_queues() if queues is None else queues)
    ns, client = broker.namespace, broker.client
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.llen(keys.queue(ns, name))
            pipe.llen(keys.suspects(ns, name))
            pipe.hlen(keys.bodies(ns, name))
            pipe.hlen(keys.bodies(ns, keys.delayed(name)))
            pipe.zcard(keys.due(ns, name))
            pipe.zcard(keys.dead(ns, name))
            pipe.lindex(keys.queue(ns, name), 0)
        rows = pipe.execute()
    by_queue = [rows[start : start + 7] for start in range(0, len(rows), 7)]
    figures = [(waiting + suspects, *others) for waiting, suspects, *others in by_queue]
    with client.pipeline(transaction=False) as pipe:
        for name, (*_, oldest) in zip(names, figures, strict=True):
            pipe.hget(keys.bodies(ns, name), oldest or "")
        bodies = pipe.execute()
    return [
        QueueReading(name, ready, stock + due, max(0, held - ready - due), dead, _age(body) if oldest else None)
        for name, (ready, held, stock, due, dead, oldest), body in zip(names, figures, bodies, strict=True)
    ]


def _age(body: bytes | None) -> timedelta | None:
    """The age of a waiting message; None for a body that is gone or cannot be read (its fetch will judge that)."""
    try:
        sent = wire.from_ms(json.loads(body or b"")["message_timestamp"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    return max(timedelta(0), clock.real_now() - sent) * clock.rate
