"""Finds workers that are gone, and returns what they held.

A worker is lost only when one and the same reaper has seen its counter unchanged for 30 s on its own monotonic clock
while it kept looking: a look that failed, or came late because Redis or this process stood still, starts all counts
again. So after an outage nobody is taken for dead because everybody was silent. A look writes before it reads, since a
Redis that only reads (a full disk, no replica, itself one) refuses every beat. A supervisor that saw its child die need
not wait and calls `reap` at once.

Stock workers are watched by the score of their heartbeat, and for stock's own 60 s. Stock producers have one too: an id
that holds nothing is left as it is. A stock id stays on stock's record when what it held here is returned, since it may
hold messages of queues that are not ours, which stock's own maintenance finds by that record; after a day of silence it
is taken off.

Of a process that ran one suspect and fell silent by itself, that suspect is what it died of. Where several fell silent
together (a host, or a supervisor that one of them killed) none is blamed. Whoever reaps them, for another lane or from
another host, the next ones run one at a time: a mark in Redis, set with the loss, says so to every supervisor.

Where a key of a queue is no longer of its type, what a worker held of that queue stays held, and its id on record: it
is reaped again after each silence, until the key is mended. What it died of is then no longer known.

Not guaranteed: that a worker which only stopped is not reaped; its tombstone then keeps what it still does from
changing anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import redis
from dramatiq.brokers.redis import DEFAULT_HEARTBEAT_TIMEOUT

from fleet import wire
from fleet.broker import keys
from fleet.broker.scripts import Scripts
from fleet.clock import clock
from fleet.logs import get_logger

log = get_logger(__name__)

LOST_AFTER = timedelta(seconds=30)
STOCK_LOST_AFTER = timedelta(milliseconds=DEFAULT_HEARTBEAT_TIMEOUT)
TOMBSTONE_SECONDS = 86_400
_SEEN_DEAD_SECONDS = 60  # of one whose end was seen only what is still on its way to Redis can come
MARKS_KEPT_SECONDS = 72 * 3_600
_ONE_AT_A_TIME_SECONDS = 60
SUSPECT_AFTER_LOSSES, CONDEMNED_AFTER_DEATHS = 3, 2
ALONE = "alone-"  # how the id of a process begins that runs suspects: who reaps it knows nothing else of it
_STOCK_FORGOTTEN_AFTER = timedelta(days=1)
_STOCK = "stock "
_NOBODY = ""  # a worker id that no worker has


@dataclass(frozen=True)
class Death:
    """How a worker process ended: of what, and in which bodies (queue, id); `seen` by its supervisor, or concluded."""

    cause: str
    in_body: Sequence[tuple[str, str]] = ()
    seen: bool = True


@dataclass(frozen=True)
class Apart:
    """A message that a reaping did not return: a suspect, or with a `verdict` a dead letter."""

    queue: str
    id: str
    verdict: str


@dataclass(frozen=True)
class Reaped:
    """What became of what a worker held; of the queues that are `broken` (queue -> error) it is held still."""

    returned: int
    apart: tuple[Apart, ...]
    broken: Mapping[str, str]


def reap(
    client: redis.Redis,
    scripts: Scripts,
    namespace: str,
    worker: str,
    queues: Iterable[str],
    *,
    death: Death | None = None,
    stock: bool = False,
    isolating: bool = False,
) -> Reaped:
    """Return a dead worker's messages to the front of these queues and set its tombstone.

    Without a `death` nobody saw what it died of. `isolating` says that somebody runs suspects here: then a message
    that was lost three times is one.
    """
    names = _with_delays(queues)
    asked = [keys.tombstone(namespace, worker), keys.turn(namespace, worker), keys.beats(namespace)]
    asked += [keys.heartbeats(namespace), keys.workers(namespace)]
    for name in names:
        asked += keys.of_reaping(namespace, worker, name)
    stands = _SEEN_DEAD_SECONDS if death and death.seen else TOMBSTONE_SECONDS
    args: list[str | int | bytes] = [worker, stands, keys.wake(namespace), int(stock)]
    args += [int(worker.startswith(ALONE)), death.cause if death else "", SUSPECT_AFTER_LOSSES if isolating else 0]
    args += [CONDEMNED_AFTER_DEATHS, MARKS_KEPT_SECONDS, clock.real_now().isoformat()]
    args += [_ONE_AT_A_TIME_SECONDS, len(names), *names]
    for queue, id in death.in_body if death else ():
        if queue in names:
            args += (names.index(queue) + 1, id.encode(errors="surrogateescape"))
    reaped = _read(names, scripts.reap(keys=asked, args=args, client=client))
    _say(worker, reaped, expected=stock or death is not None)
    return reaped


def _read(names: Sequence[str], answer: Sequence[bytes]) -> Reaped:
    """What the script answered to a reaping of these queues."""
    returned, broken, *apart = answer
    places = [line.partition(" ") for line in broken.decode(errors="surrogateescape").splitlines()]
    return Reaped(
        int(returned),
        tuple(
            Apart(names[int(queue) - 1], id.decode(errors="surrogateescape"), verdict.decode())
            for queue, id, verdict in zip(apart[::3], apart[1::3], apart[2::3], strict=True)
        ),
        {names[int(place) - 1]: error for place, _, error in places},
    )


def _say(worker: str, reaped: Reaped, *, expected: bool) -> None:
    """`expected` is the end of a worker that a supervisor saw, or of a stock one; any other fell silent."""
    say = log.info if expected and not reaped.returned and not reaped.apart else log.warning
    say("worker_reaped", worker=worker, returned=reaped.returned, apart=len(reaped.apart))
    for queue, error in reaped.broken.items():
        log.warning("messages_not_returned_yet", worker=worker, queue=queue, error=error)
    for one in reaped.apart:
        if one.verdict:
            log.error("message_condemned", queue=one.queue, id=one.id, reason=one.verdict, dead_letter=True)
    if suspects := [one.id for one in reaped.apart if not one.verdict]:
        log.warning("messages_suspected", worker=worker, count=len(suspects), first=suspects[:5])


def _with_delays(queues: Iterable[str]) -> list[str]:
    """These queues and stock's delay queues beside them."""
    return list(dict.fromkeys(name for queue in queues for name in (queue, keys.delayed(queue))))


@dataclass(frozen=True)
class Silent:
    """A worker that did not move for long enough, as far as one reaper saw."""

    worker: str
    sign: str
    silence: timedelta


@dataclass
class _Seen:
    sign: str
    since: float


class Reaper:
    """Watches every worker that beats; `look` is called several times in a third of `lost_after`."""

    def __init__(
        self,
        client: redis.Redis,
        scripts: Scripts,
        namespace: str,
        queues: Iterable[str],
        *,
        lost_after: timedelta = LOST_AFTER,
        stock_lost_after: timedelta = STOCK_LOST_AFTER,
        isolating: bool = False,
        condemned: Callable[[Apart], None] = lambda _: None,
    ) -> None:
        self._client, self._scripts, self._namespace = client, scripts, namespace
        self._queues = set(queues)
        self._lost_after, self._stock_lost_after = lost_after.total_seconds(), stock_lost_after.total_seconds()
        self._isolating, self._condemned = isolating, condemned
        self._seen: dict[str, _Seen] = {}
        self._known: set[str] = set()
        self._together: set[str] = set()  # those that ran suspects and fell silent at once: nobody can say whose doing
        self._looked_at = 0.0

    def look(self) -> int:
        """Reap what has been silent for long enough; returns how many messages returned.

        A look that fails forgets everything it saw, since the silence may have been this reaper's own.
        """
        return sum(self.end(one) for one in self.silent())

    def silent(self) -> list[Silent]:
        """A look that reaps nobody: who has been silent for long enough by now. Fails as `look` does."""
        try:
            signs, queues = self._signs()
        except redis.RedisError:
            self._seen.clear()
            raise
        now = clock.monotonic()
        if now - self._looked_at > self._lost_after / 3:  # Redis or this process stood still, and others with it
            self._seen.clear()
        self._looked_at = now
        # A worker's queues may be on no record (a stock one's, or one that has just begun): look in all that are known.
        self._known = self._queues.union(*queues.values())
        self._seen = {worker: seen for worker, seen in self._seen.items() if worker in signs}
        self._note_together(signs, now)
        found = []
        for worker, sign in signs.items():
            seen = self._seen.get(worker)
            if seen is None or seen.sign != sign:
                self._seen[worker] = _Seen(sign, now)
            elif now - seen.since > (self._stock_lost_after if sign.startswith(_STOCK) else self._lost_after):
                found.append(Silent(worker, sign, timedelta(seconds=now - seen.since)))
        return found

    def unmoved_since(self) -> dict[str, float]:
        """Worker -> the monotonic instant since which it was seen not to move; stock's are left out."""
        return {worker: seen.since for worker, seen in self._seen.items() if not seen.sign.startswith(_STOCK)}

    def end(self, one: Silent) -> int:
        """Reap a worker that was silent at the last look; returns how many messages returned. Fails as `look` does."""
        try:
            returned = self._end(one.worker, self._known, stock=one.sign.startswith(_STOCK))
        except redis.RedisError:
            self._seen.clear()
            raise
        self._seen.pop(one.worker, None)
        return returned

    def moved(self, one: Silent) -> bool:
        """Whether a silent worker has moved since, or somebody else has reaped it."""
        return self._signs()[0].get(one.worker) != one.sign

    def _note_together(self, signs: dict[str, str], now: float) -> None:
        """Who fell silent at once may be seen to by two looks, so half of the silence tells."""
        silent = {
            worker
            for worker, seen in self._seen.items()
            if worker.startswith(ALONE) and seen.sign == signs[worker] and now - seen.since > self._lost_after / 2
        }
        self._together = (self._together | silent if len(silent) > 1 else self._together) & signs.keys()

    def _end(self, worker: str, queues: set[str], *, stock: bool) -> int:
        if stock and not self._holds_something(worker, queues):
            log.debug("stock_silent", worker=worker)
            return 0
        reaped = reap(
            self._client,
            self._scripts,
            self._namespace,
            worker,
            queues,
            death=Death("lost with others", seen=False) if worker in self._together else None,
            stock=stock,
            isolating=self._isolating,
        )
        for one in reaped.apart:
            if one.verdict:
                self._condemned(one)
        return reaped.returned

    def _holds_something(self, worker: str, queues: set[str]) -> bool:
        """Whether a silent stock id holds a message of these queues; one silent for a day leaves stock's record."""
        asked = [keys.heartbeats(self._namespace)]
        asked += [keys.acks(self._namespace, worker, name) for name in _with_delays(queues)]
        args: list[str | int] = [worker, wire.duration_ms(_STOCK_FORGOTTEN_AFTER)]
        return bool(self._scripts.forget(keys=asked, args=args, client=self._client))

    def _signs(self) -> tuple[dict[str, str], dict[str, list[str]]]:
        """Worker -> what changes while it lives, and worker -> its queues; fails where no beat would be taken."""
        with self._client.pipeline(transaction=False) as pipe:
            pipe.hdel(keys.beats(self._namespace), _NOBODY)  # changes nothing, and is refused as a beat is
            pipe.hgetall(keys.beats(self._namespace))
            pipe.zrange(keys.heartbeats(self._namespace), 0, -1, withscores=True)
            pipe.hgetall(keys.workers(self._namespace))
            _, beats, heartbeats, workers = pipe.execute()
        signs = {worker.decode(): f"{_STOCK}{score:.0f}" for worker, score in heartbeats}
        signs |= {worker.decode(): count.decode() for worker, count in beats.items()}
        return signs, {worker.decode(): json.loads(raw) for worker, raw in workers.items()}
