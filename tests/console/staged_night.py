"""What a staged fleet has behind it: the slots since noon, the runs they became, and what elastic work was allowed."""

from __future__ import annotations

import json
import math
import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import redis

from fleet import entry_runs, wire
from fleet.app import App
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.entry_runs import Run
from fleet.flow import Flow
from fleet.night_plan import zone_of
from fleet.slots import slots_between
from fleet.timeline import Night
from fleet.window import elastic_of, window

MINUTE = timedelta(minutes=1)
TERM = 41
EXPIRED = "sync_all_active_integrations"
_TAKES = {
    "update_all_transactions": 47 * MINUTE,
    "update_accounts": 22 * MINUTE,
    "nightly_audit": 9 * MINUTE,
    "charge_subscriptions": 12 * MINUTE,
    "check_queue_health": timedelta(seconds=4),
}
_DECIDED = ((0, 1, "calm"), (35, 2, "calm"), (80, 1, "hot"), (110, 0, "free"), (150, 2, "floor"))


def stage(broker: FleetBroker, app: App) -> None:
    """The night so far; each instant as if it had been written then. In one round trip, late in the day too."""
    now, ns = clock.now(), broker.namespace
    begins = Night.around(now, zone_of(app.schedule)).begins
    with broker.client.pipeline(transaction=False) as pipe:
        for entry in app.schedule:
            drawn = random.Random(entry.name)
            for slot in slots_between(entry, begins, now):
                expired = entry.name == EXPIRED
                line(pipe, ns, entry.name, "expired" if expired else "fired", slot)
                if not expired and entry.elastic is None and slot + MINUTE < now:
                    entry_runs.add(pipe, ns, _run(entry, slot, drawn.uniform(0.8, 1.2), now))
            if entry.elastic is not None:
                _decided(pipe, ns, entry, now)
        pipe.execute()


def loads(broker: FleetBroker, app: App) -> None:
    """A reading each five minutes since noon, the last one five minutes ago; and what flowed in those five."""
    now = clock.now()
    at = Night.around(now, zone_of(app.schedule)).begins
    with broker.client.pipeline(transaction=False) as pipe:
        while at <= now - 5 * MINUTE:
            hours = (at - now) / timedelta(hours=1)
            rows = {
                queue: [round(300 * _busy(queue, hours)), 0, round(lane.threads * _busy(queue, hours)), 0, None]
                for lane in app.lanes
                for queue in lane.queues
            }
            id = f"{wire.to_ms(clock.to_real_instant(at))}-*"
            pipe.xadd(keys.history(broker.namespace), {"queues": json.dumps(rows)}, id=id)
            at += 5 * MINUTE
        pipe.execute()


def flows(broker: FleetBroker) -> None:
    """What processes counted lately of two queues."""
    flow = Flow(broker.client, broker.namespace)
    for queue, ended, late in (("transaction_postprocess", 62, 9.2), ("transaction_sync", 940, 1.1)):
        for number in range(ended):
            flow.started(queue, late * 60_000 * (number % 20) / 19)
        flow.add(f"q:{queue}:ended", count=ended)
    flow.add("a:categorize_transaction:jobs", count=50)
    flow.add("a:categorize_transaction:wall_us", count=410_000_000)
    flow.start()
    flow.stop()


def _busy(queue: str, hours: float) -> float:
    """How busy a queue was so many hours from now, as a share: at five, at one, and now."""
    peaks = {"transaction_sync": (-11.3, -3.3, 0.0), "transaction_postprocess": (-9.0, -2.0, 0.0)}
    return sum(math.exp(-((hours - peak) ** 2) * 8) for peak in peaks.get(queue, (-3.0,)))


def line(client: redis.Redis, namespace: str, entry: str, verdict: str, slot: datetime) -> None:
    """One line of an entry's ledger, written at its slot; by a pipeline too."""
    at = wire.to_ms(slot)
    fields = {"verdict": verdict, "from": at, "to": at, "count": 1, "token": "staged", "epoch": TERM, "revision": 1}
    real = wire.to_ms(clock.to_real_instant(slot))
    client.xadd(keys.ledger(namespace, entry), fields, id=f"{real}-*")  # type: ignore[arg-type]


def _run(entry: Entry, slot: datetime, share: float, now: datetime) -> Run:
    started = slot + timedelta(seconds=3)
    takes = _TAKES.get(entry.name, MINUTE / 2) * share
    message = f"{entry.name}@{wire.to_ms(slot)}"
    run = Run(entry.name, uuid.uuid4().hex, message, slot, 1, "1010", started, started + 2 * takes)
    ended = started + takes
    return replace(run, ended=ended, outcome="done") if ended < now else run


def _decided(pipe: redis.client.Pipeline, namespace: str, entry: Entry, now: datetime) -> None:
    night, cap = window(entry, now), elastic_of(entry).cap
    last = None
    for at, places, reason in _until(night.opens, now):
        last = {"places": min(places, cap), "reason": reason}
        numbers = {"before": 0, "backlog": 1_204 - 4 * places, "cost": 2.1, "needs": 1, "wait": 3.0, "free": 0.8}
        told = {
            "at": wire.to_ms(at),
            "places": last["places"],
            "reason": reason,
            "epoch": TERM,
            "text": _text(reason, min(places, cap)),
            "numbers": json.dumps(numbers),
        }
        pipe.xadd(keys.decisions(namespace, entry.name), told)  # type: ignore[arg-type]
    if last is not None:
        lease = json.dumps({**last, "until": wire.to_ms(now + 3 * MINUTE)})
        pipe.set(keys.allowance(namespace, entry.name), lease)


def _until(opens: datetime, now: datetime) -> Iterator[tuple[datetime, int, str]]:
    """A decision each two minutes, as a leader makes them, so that no lease lapses between two."""
    at = opens
    while at < now:
        since = (at - opens) / MINUTE
        _, places, reason = next(one for one in reversed(_DECIDED) if one[0] <= since)
        yield at, places, reason
        at += 2 * MINUTE


def _text(reason: str, places: int) -> str:
    words = {
        "calm": "nobody needs the processors",
        "hot": "people wait for their jobs to start, so it was halved",
        "free": "others need the processors",
        "floor": "with less the backlog would not be done by the deadline",
    }
    return f"{places} chain{'s' if places != 1 else ''}: {words[reason]}"
