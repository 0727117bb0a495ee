"""What reading 50 queues of a million messages costs the server, beside Dramatiq's own way to read their sizes.

The server's time is what it counted itself (`commandstats`). Every queue has a million ids that wait, and delayed and
dead ones; bodies only for the ids that anybody looks at, since their number costs nobody anything. Five minutes of
counts of 50 queues and 60 actors lie there too. Dramatiq asks queue by queue (`do_qsize`), for one number of each.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

from dramatiq.brokers.redis import RedisBroker

from fleet import flow, probe, wire
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from tests.benchmarks.stage import Stage

_AIM_MS = 2.0
_QUEUES, _MESSAGES, _OTHERS, _ACTORS, _WORKERS = 50, 1_000_000, 2_000, 60, 20
_LOOKS = 20
_FILL = """
for first = 1, ARGV[1], 1000 do
    local ids = {}
    for id = first, first + 999 do
        ids[#ids + 1] = id
    end
    redis.call("RPUSH", KEYS[1], unpack(ids))
end
for id = 1, ARGV[2] do
    redis.call("HSET", KEYS[2], id, ARGV[3])
    redis.call("ZADD", KEYS[3], 9e12 + id, "delayed" .. id)
    redis.call("ZADD", KEYS[4], id, "dead" .. id)
end
"""


def report(stage: Stage, rounds: int) -> None:
    """Print the medians of `rounds`, and the ratio."""
    names = [f"queue-{number:02}" for number in range(_QUEUES)]
    ours = FleetBroker(url=stage.redis_url, namespace=stage.namespace)
    stock = RedisBroker(url=stage.redis_url, namespace=stage.namespace)
    _fill(stage, names)
    ratios, costs, others, trips = [], [], [], []
    for _ in range(rounds):
        cost, trip = _cost(stage, lambda: len(probe.read(ours, names)))
        other, other_trip = _cost(stage, lambda: sum(stock.do_qsize(name) for name in names))
        costs.append(cost)
        others.append(other)
        ratios.append(other / cost)
        trips.append((trip, other_trip))
    waited = [statistics.median(side) for side in zip(*trips, strict=True)]
    print(
        f"probe, {_QUEUES} queues of {_MESSAGES:,}: {statistics.median(costs):.2f} ms of the server a look "
        f"({min(costs):.2f} to {max(costs):.2f}), aim {_AIM_MS:g} ms "
        f"{'met' if statistics.median(costs) <= _AIM_MS else 'NOT MET'}; Dramatiq's sizes alone "
        f"{statistics.median(others):.2f} ms, {statistics.median(ratios):.2g}x; "
        f"the caller waits {waited[0]:.1f} ms, and {waited[1]:.1f} ms for Dramatiq's {_QUEUES} round trips"
    )
    stage.client.delete(*(key for name in names for key in keys.of_probing(stage.namespace, name)))
    stage.clear()
    stock.close()


def _cost(stage: Stage, look: Callable[[], int]) -> tuple[float, float]:
    """Milliseconds of the server a look, and until it is read."""
    look()
    stage.client.config_resetstat()
    began = time.perf_counter()
    for _ in range(_LOOKS):
        look()
    waited = (time.perf_counter() - began) / _LOOKS
    spent = stage.client.info("commandstats")
    # What a script calls is counted beside the script, whose time holds it.
    used = sum(spent.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in ("evalsha", "hgetall"))
    return used / _LOOKS / 1000, waited * 1000


def _fill(stage: Stage, names: list[str]) -> None:
    ns, client, now = stage.namespace, stage.client, wire.to_ms(clock.real_now())
    message = {
        "queue_name": "a",
        "actor_name": "b",
        "args": ["x" * 300],
        "kwargs": {},
        "options": {},
        "message_id": "c",
    }
    body = json.dumps({**message, "message_timestamp": now}, separators=(",", ":"))
    fill = client.register_script(_FILL)
    for name in names:
        of = [keys.queue(ns, name), keys.bodies(ns, name), keys.due(ns, name), keys.dead(ns, name)]
        fill(keys=of, args=[_MESSAGES, _OTHERS, body])
    for number in range(_WORKERS):
        client.zadd(keys.heartbeats(ns), {f"worker-{number}": now + 3_600_000})
        client.hset(keys.workers(ns), f"worker-{number}", json.dumps(names))
    last = flow.minute_of(clock.now())
    figures = ["started", "ended", *(f"lag.{place}" for place in range(10, 20))]
    counts = {f"q:{name}:{figure}": 500 for name in names for figure in figures}
    counts |= {f"a:actor-{n}:{figure}": 500_000 for n in range(_ACTORS) for figure in ("jobs", "cpu_us", "wall_us")}
    for minute in range(last - 5, last + 10):
        client.hset(keys.flow(ns, minute), mapping=counts)
        client.expire(keys.flow(ns, minute), 600)
