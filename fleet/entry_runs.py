"""What became of the messages of an entry: when each run began and ended, how, and where. A capped stream an entry.

A run is written down twice: as it begins, and whole as it ends. So a run whose process was killed stays there without
an end; `settled` calls it lost once its hard budget is over or a later run of its message has begun. A message that
was refused (it had expired, its slot was another's) is a run that ended as it began. Chunks of elastic work are many
and short: each is written down as it ends, and one that was killed is not.

All instants are night time, by the clock of the worker's machine. Of each entry the last `LENGTH` lines are kept, a few
more at times, and none for longer than five weeks after the last one.

Not guaranteed: a line a run. Lines are told to Redis once, and what Redis does not take is not said again: a run may be
missing, or be without its end. Nothing decides by them but what is shown and planned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import redis

from fleet import wire
from fleet.broker import FleetBroker, keys
from fleet.clock import clock

LENGTH = 4_000  # a day of an entry that comes every minute, begun and ended; about 600 kB when full
KEPT_FOR = timedelta(days=35)  # night time: a monthly entry's last run is still known
_LONGEST_RUN = timedelta(days=1)  # how long before an instant a run may have begun that was going then

LOST, RETURNED = "lost", "returned"
_WHOLE = ("done", "deadline")


@dataclass(frozen=True)
class Run:
    """One run of a message of an entry.

    `id` tells it from other runs of the message. `slot` is None for a message that a person had fired, and for a chunk
    of elastic work, which has the number of its `chain`. `until` is when its hard budget ends. `outcome` is a word of
    `middleware.outcome`, or `returned` (its process ended and it goes back), or `lost`; it and `ended` are None while
    nothing is known of an end.
    """

    entry: str
    id: str
    message_id: str
    slot: datetime | None
    attempt: int
    worker: str
    started: datetime
    until: datetime
    ended: datetime | None = None
    outcome: str | None = None
    chain: int | None = None

    @property
    def took(self) -> timedelta | None:
        return None if self.ended is None else self.ended - self.started


@dataclass(frozen=True)
class Durations:
    """How long the last `count` runs took that came to their end."""

    count: int
    p50: timedelta
    p95: timedelta
    longest: timedelta


def write(broker: FleetBroker, run: Run) -> None:
    """Write a run down, begun or ended; raises what redis-py raises when Redis does not take it."""
    with broker.client.pipeline(transaction=True) as pipe:
        add(pipe, broker.namespace, run)
        pipe.execute()


def add(pipe: redis.client.Pipeline, namespace: str, run: Run) -> None:
    """Write a run down by a pipeline that the caller executes."""
    key = keys.entry_runs(namespace, run.entry)
    pipe.xadd(key, _fields(run), maxlen=LENGTH, approximate=True)
    pipe.pexpire(key, max(50, wire.duration_ms(clock.to_real(KEPT_FOR))))


def read(broker: FleetBroker, entry: str, since: datetime | None = None, most: int = LENGTH) -> list[Run]:
    """The runs of an entry in order of their beginning, from at most so many lines.

    With `since` those that had not ended by then, and perhaps some from before.
    """
    lowest = "-" if since is None else max(0, wire.to_ms(clock.to_real_instant(since - _LONGEST_RUN)))
    found: Any = broker.client.xrevrange(keys.entry_runs(broker.namespace, entry), min=lowest, count=most)
    runs: dict[str, Run] = {}
    for _, fields in found:
        run = _run(entry, fields)
        if run is not None and (run.id not in runs or runs[run.id].ended is None):
            runs[run.id] = run
    if since is not None:
        runs = {id: run for id, run in runs.items() if run.ended is None or run.ended >= since}
    return sorted(runs.values(), key=lambda run: run.started)


def settled(runs: Iterable[Run], now: datetime) -> list[Run]:
    """The runs in order of their beginning; one without an end that can no longer go on is `lost` at the latest instant
    at which it can have gone on."""
    known = sorted(runs, key=lambda run: run.started)
    later: dict[str, datetime] = {}
    done = []
    for run in reversed(known):
        latest = min(run.until, later.get(run.message_id, run.until))
        if run.ended is None and latest < now:
            run = replace(run, ended=max(run.started, latest), outcome=LOST)
        later[run.message_id] = run.started
        done.append(run)
    return done[::-1]


def durations(runs: Iterable[Run]) -> Durations | None:
    """Of the runs that came to their end, or to that of their budget; None if there is none."""
    took = sorted(run.took for run in runs if run.took is not None and run.outcome in _WHOLE)
    if not took:
        return None
    return Durations(len(took), _rank(took, 0.5), _rank(took, 0.95), took[-1])


def _rank(ordered: Sequence[timedelta], share: float) -> timedelta:
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def _fields(run: Run) -> dict[Any, Any]:
    fields = {
        "id": run.id,
        "message": run.message_id,
        "attempt": run.attempt,
        "worker": run.worker,
        "started": wire.to_ms(run.started),
        "until": wire.to_ms(run.until),
    }
    if run.slot is not None:
        fields["slot"] = wire.to_ms(run.slot)
    if run.chain is not None:
        fields["chain"] = run.chain
    if run.ended is not None and run.outcome is not None:
        fields |= {"ended": wire.to_ms(run.ended), "outcome": run.outcome}
    return fields


def _run(entry: str, fields: dict[bytes, bytes]) -> Run | None:
    """A line of the stream; None for one that this version cannot read."""
    told = {name.decode(): value.decode(errors="replace") for name, value in fields.items()}
    try:
        instants = {
            name: wire.from_ms(int(told[name])) for name in ("slot", "started", "until", "ended") if name in told
        }
        return Run(
            entry,
            told["id"],
            told["message"],
            instants.get("slot"),
            int(told["attempt"]),
            told["worker"],
            instants["started"],
            instants["until"],
            instants.get("ended"),
            told.get("outcome"),
            int(told["chain"]) if "chain" in told else None,
        )
    except (KeyError, ValueError, OverflowError):
        return None
