"""What a process counts of the messages that flow through it, flushed into one hash a night minute (`keys.flow`).

A worker process counts, by `middleware.flow`: a queue's starts and ends and how late bodies began after their message
was due; an actor's bodies with their wall and CPU time; an entry's slots that came too late; a sweep's rows that
failed. A supervisor counts the CPU of its lane. A job pays a few additions under a lock; a thread flushes them, at most
once a second (real) or fifteen seconds (night).

A worker says as often since when the oldest message is due that it fetched and no thread began (`keys.prefetched`):
such a message waits, and no queue shows it.

These are statistics. Not guaranteed: that each is counted once (a flush whose reply was lost is sent again), in its
own minute (a flush is of the minute it is made in, by this process's clock), or at all (a process that is killed takes
its last second with it). CPU is the body's own thread's: what it started elsewhere, an async actor's loop too, shows in
its lane's CPU alone. While Redis is away counts wait, up to twenty night minutes.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import redis
from dramatiq import Message, MessageProxy

from fleet import wire
from fleet.broker import keys
from fleet.clock import clock
from fleet.logs import get_logger

log = get_logger(__name__)

MINUTE = timedelta(minutes=1)
_KEPT = 20 * MINUTE
_LONGEST_PAUSE, _NIGHT_PAUSE, _SHORTEST_PAUSE = 1.0, timedelta(seconds=15), 0.05
_AGAIN_SECONDS = 1.0
_LAST_MS = 253_402_300_800_000  # the year 10000
_PREFETCHED_SECONDS = 600  # real; who writes renews it, and who is gone is not asked
_BUCKETS_AN_OCTAVE, _LAST_BUCKET = 2, 72  # the last begins at some two years of milliseconds


def minute_of(instant: datetime) -> int:
    """The number of a night instant's minute, since 1970."""
    return wire.to_ms(instant) // 60_000


def start_lag(message: Message[Any] | MessageProxy, real_now: datetime) -> timedelta | None:
    """From when a message was due (its sending, or its eta) until now, in night time; None if it does not say.

    A repeated delivery counts from when the message was due as well: that it began before was for nothing.
    """
    late = lag_ms(message, real_now.timestamp() * 1000)
    return None if late is None else timedelta(milliseconds=late)


def lag_ms(message: Message[Any] | MessageProxy, real_now_ms: float) -> float | None:
    """The same in night milliseconds, for who asks at every message."""
    due = getattr(message, "due", None) or message.options.get(wire.DUE_AT, message.message_timestamp)
    if type(due) is not int or not 0 <= due < _LAST_MS:
        return None
    return max(0.0, real_now_ms - due) * clock.rate


def bucket(milliseconds: float) -> int:
    """The place of a lag in the histogram: 0 below a millisecond, then two an octave."""
    return 0 if milliseconds < 1 else min(_LAST_BUCKET, int(_BUCKETS_AN_OCTAVE * math.log2(milliseconds)) + 1)


def upper(place: int) -> timedelta:
    """The lag that a bucket's lags are below."""
    return timedelta(milliseconds=2 ** (place / _BUCKETS_AN_OCTAVE))


Prefetched = tuple[str, Mapping[str, int]]
"""A worker's id, and since when (real milliseconds) its oldest fetched message of each queue is due."""


class Flow:
    """One process's counts; the thread that flushes them runs from `start` to `stop`.

    `waiting` is asked by that thread for what the process holds and did not begin.
    """

    def __init__(self, client: redis.Redis, namespace: str, waiting: Callable[[], Prefetched] | None = None) -> None:
        self._client, self._namespace, self._waiting = client, namespace, waiting
        self._said: str | None = None  # the worker id under which something is said to wait
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._unsent: dict[int, Counter[str]] = {}  # minute -> what could not be flushed yet
        self._lock, self._dirty, self._stopped = threading.Lock(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Flush what is left, once."""
        self._stopped.set()
        self._dirty.set()
        self._thread.join(_LONGEST_PAUSE * 10)

    def started(self, queue: str, lag: float | None) -> None:
        """A body begins, so many night milliseconds after its message was due."""
        with self._lock:
            counts = self._counts
            counts[f"q:{queue}:started"] += 1
            if lag is not None:
                counts[f"q:{queue}:lag.{bucket(lag)}"] += 1
        self._wake()

    def _wake(self) -> None:
        if not self._dirty.is_set():  # setting it again would take its lock again
            self._dirty.set()

    def ran(self, queue: str, actor: str, *, wall: float, cpu: float, ended: bool) -> None:
        """A body came to its end, after so many seconds; the message too, unless it comes again."""
        with self._lock:
            counts = self._counts
            counts[f"a:{actor}:jobs"] += 1
            counts[f"a:{actor}:wall_us"] += int(wall * 1e6)
            counts[f"a:{actor}:cpu_us"] += int(cpu * 1e6)
            if ended:
                counts[f"q:{queue}:ended"] += 1
        self._wake()

    def add(self, *figures: str, count: int = 1) -> None:
        """Count other figures: `kind:name:figure`."""
        with self._lock:
            for figure in figures:
                self._counts[figure] += count
        self._dirty.set()

    def _run(self) -> None:
        while True:
            self._dirty.wait(None if self._waiting is None else pause())
            self._dirty.clear()
            kept = self._flush()
            if self._stopped.is_set():
                return
            if not kept:
                self._dirty.set()
            self._stopped.wait(pause() if kept else _AGAIN_SECONDS)

    def _flush(self) -> bool:
        """Send what was counted; whether Redis has it."""
        minute = minute_of(clock.now())
        with self._lock:
            counted, self._counts = self._counts, defaultdict(int)
        self._unsent.setdefault(minute, Counter()).update(counted)
        for old in [old for old in self._unsent if old <= minute - _KEPT // MINUTE]:
            del self._unsent[old]
        try:
            for of in sorted(self._unsent):
                self._send(of, self._unsent[of])
                del self._unsent[of]
            if self._waiting is not None:
                self._say_what_waits(*self._waiting())
        except redis.ResponseError as error:
            log.warning("flow_refused", error=str(error))
            self._unsent.clear()  # what Redis refuses now it would refuse again
        except redis.RedisError as error:
            log.debug("flow_not_flushed", error=str(error))
            return False
        except Exception:  # one flush that breaks must not be the last
            log.exception("flow_broke")
            self._unsent.clear()
        return True

    def _send(self, minute: int, counts: Mapping[str, int]) -> None:
        if not counts:
            return
        key = keys.flow(self._namespace, minute)
        with self._client.pipeline(transaction=True) as pipe:
            for figure, count in counts.items():
                pipe.hincrby(key, figure, count)
            pipe.pexpire(key, max(50, wire.duration_ms(clock.to_real(_KEPT))))
            pipe.execute()

    def _say_what_waits(self, worker: str, due: Mapping[str, int]) -> None:
        key = keys.prefetched(self._namespace)
        if self._said is not None and (not due or self._said != worker):
            self._client.hdel(key, self._said)
            self._said = None
        if due:
            with self._client.pipeline(transaction=True) as pipe:
                pipe.hset(key, worker, json.dumps(due))
                pipe.expire(key, _PREFETCHED_SECONDS)
                pipe.execute()
            self._said = worker


def prefetched(said: Iterable[bytes | None]) -> dict[str, datetime]:
    """Of what workers said that they hold and did not begin: since when the oldest of each queue is due."""
    oldest: dict[str, datetime] = {}
    for one in said:
        try:
            due = json.loads(one or b"{}")
            for queue, at in due.items():
                if (instant := wire.instant(at)) is not None:
                    oldest[queue] = min(instant, oldest.get(queue, instant))
        except (ValueError, AttributeError):
            continue  # another version's
    return oldest


def pause() -> float:
    """Real seconds between two flushes."""
    return max(_SHORTEST_PAUSE, min(_LONGEST_PAUSE, clock.to_real(_NIGHT_PAUSE).total_seconds()))


_active: Flow | None = None


def activate(flow: Flow | None) -> None:
    """Have this process's sweeps counted there; None for no more."""
    global _active
    _active = flow


os.register_at_fork(after_in_child=lambda: activate(None))  # the thread that flushes is its parent's


def note_sweep(name: str, *, failed: int, cut: bool) -> None:
    """Count a sweep that was cut or had rows that failed; nothing in a process that is no worker."""
    if _active is None:
        return
    if cut:
        _active.add(f"s:{name}:cut")
    if failed:
        _active.add(f"s:{name}:failed", count=failed)


@dataclass
class QueueFlow:
    """What was counted of a queue; `lags` by bucket."""

    started: int = 0
    ended: int = 0
    lags: Counter[int] = field(default_factory=Counter)

    def quantile(self, share: float) -> timedelta | None:
        """The lag that so many of the starts were below, within the width of a bucket; None without a start."""
        left = share * sum(self.lags.values())
        for place in sorted(self.lags):
            if left <= self.lags[place]:
                low = timedelta(0) if place == 0 else upper(place - 1)
                return low + (upper(place) - low) * max(0.0, left / self.lags[place])
            left -= self.lags[place]
        return upper(max(self.lags)) if self.lags else None


@dataclass
class Counted:
    """The counts of some minutes, summed; those of entries, sweeps, actors and lanes are by name and figure."""

    queues: dict[str, QueueFlow] = field(default_factory=dict)
    others: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)

    def of(self, kind: str) -> Mapping[str, Counter[str]]:
        """Figures by name, of actors (`a`), entries (`e`), lanes (`l`) or sweeps (`s`)."""
        return self.others.get(kind, {})


def summed(hashes: Iterable[Mapping[bytes, bytes]]) -> Counted:
    """Add up the hashes of some minutes; what cannot be read, of another version, is passed over."""
    totals: Counter[bytes] = Counter()
    for one in hashes:
        for key, written in one.items():
            totals[key] += int(written)
    counted = Counted()
    for figure_of, count in totals.items():
        kind, _, rest = figure_of.decode(errors="replace").partition(":")
        name, _, figure = rest.rpartition(":")
        if kind != "q":
            counted.others.setdefault(kind, {}).setdefault(name, Counter())[figure] = count
            continue
        queue = counted.queues.setdefault(name, QueueFlow())
        if figure in ("started", "ended"):
            setattr(queue, figure, count)
        elif (place := figure.removeprefix("lag.")).isdecimal():
            queue.lags[int(place)] = count
    return counted
