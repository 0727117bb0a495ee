"""The dead letters: read a page at a time, queued again at a bounded rate, discarded, and kept for a while only.

A dead letter is the message as it was (stock tools read it), and beside it why, where and when it died. Letters that a
stock worker made have no details; what their body says is shown.

Whatever moves letters takes them by their place, queue and id, and reads bodies a page at a time: a hundred thousand
letters are a hundred thousand ids in memory, not their arguments.

Not guaranteed: that a listing and what follows see the same letters. Each is moved by its id, once, if it is still
there. When Redis goes while letters are moved, those that were moved stay moved.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import Any, Literal, NamedTuple

from dramatiq import Message
from dramatiq.errors import DecodeError

from fleet import wire
from fleet.broker import keys
from fleet.broker.broker import FleetBroker
from fleet.clock import clock
from fleet.declarations import DEAD_KEPT_FOR, DEAD_KEPT_MOST
from fleet.payloads import as_it_lay, as_it_lies, is_sealed
from fleet.unspent import OUTAGES, PARKINGS

PAGE = 200
LONGEST_EXCEPTION = 500  # characters that a letter keeps
_TRIMMED_A_CALL = 500
_CALLS_A_TRIM = 20  # so that a flood of deaths does not outrun the janitor; some milliseconds a call
_RESET = ("retries", "traceback", "requeue_timestamp", "hook_failures", PARKINGS, OUTAGES, wire.EXPIRES_AT, wire.DUE_AT)
"""Options that a letter leaves behind: it begins anew, and a window that has passed does not drop it again."""

Outcome = Literal["moved", "unreadable", "gone"]


class Place(NamedTuple):
    """Where a letter stands; bytes of an id that are no UTF-8 as surrogates."""

    queue: str
    id: str


@dataclass(frozen=True)
class DeadLetter:
    """One letter; `message` is None where its bytes cannot be read. `died` is real time."""

    place: Place
    died: datetime
    message: Message[Any] | None
    details: dict[str, Any]

    @property
    def queue(self) -> str:
        return self.place.queue

    @property
    def id(self) -> str:
        """Its id in Redis, fit to be printed."""
        return self.place.id.encode(errors="surrogateescape").decode(errors="backslashreplace")

    @property
    def actor(self) -> str:
        return self.message.actor_name if self.message else str(self.details.get("actor", "?"))

    @property
    def sealed(self) -> bool:
        """Whether its arguments are encrypted and no key here opens them; it can be moved all the same."""
        return self.message is not None and is_sealed(self.message)

    @property
    def reason(self) -> str:
        return str(self.details.get("reason", "failed"))

    @property
    def exception(self) -> str:
        """What was raised, as far as it is known."""
        traceback = (self.message.options.get("traceback") if self.message else None) or ""
        return str(self.details.get("exception") or str(traceback).strip().rpartition("\n")[2] or "-")


@dataclass(frozen=True)
class Filter:
    """Which letters; what is not given matches all. `argument` is a part of one argument's JSON."""

    actor: str | None = None
    reason: str | None = None
    older_than: timedelta | None = None
    newer_than: timedelta | None = None
    argument: str | None = None

    @property
    def reads_bodies(self) -> bool:
        """Whether a letter must be read to know that it matches."""
        return (self.actor, self.reason, self.argument) != (None, None, None)

    def span(self) -> tuple[str, str]:
        """The scores of the letters that are old and new enough now."""
        now = clock.real_now()
        newest = "+inf" if self.older_than is None else str(wire.to_ms(now - self.older_than))
        return "-inf" if self.newer_than is None else str(wire.to_ms(now - self.newer_than)), newest

    def matches(self, letter: DeadLetter) -> bool:
        """Whether a letter of the span matches."""
        if self.actor not in (None, letter.actor) or self.reason not in (None, letter.reason):
            return False
        if self.argument is None:
            return True
        given = [*letter.message.args, *letter.message.kwargs.values()] if letter.message else []
        return any(self.argument in json.dumps(value, ensure_ascii=False) for value in given)


def letters(
    broker: FleetBroker, queues: Sequence[str], which: Filter = Filter(), *, skip: int = 0
) -> Iterator[DeadLetter]:
    """The matching letters of these queues but the first `skip`, oldest first; a page a round trip, never a whole list.

    Where the filter reads no bodies, those that are skipped are not read either.
    """
    lowest, highest = which.span()
    for queue in queues:
        key, start = keys.dead(broker.namespace, queue), 0
        if skip and not which.reads_bodies:
            start = min(skip, int(broker.client.zcount(key, lowest, highest)))
            skip -= start
        while ids := _ids(broker, key, lowest, highest, start):
            for letter in filter(which.matches, _read(broker, queue, ids)):
                if not skip:
                    yield letter
                skip = max(0, skip - 1)
            start += len(ids)


def _ids(broker: FleetBroker, key: str, lowest: str, highest: str, start: int) -> list[bytes]:
    ids: Any = broker.client.zrangebyscore(key, lowest, highest, start=start, num=PAGE)
    return list(ids)


def scan(
    broker: FleetBroker, queue: str, which: Filter = Filter(), *, start: int = 0, most: int = PAGE
) -> tuple[list[DeadLetter], int, int | None]:
    """The matching ones of a queue's next letters from a place on; how many it looked at; and where to go on."""
    ids = _ids(broker, keys.dead(broker.namespace, queue), *which.span(), start)[:most]
    found = list(filter(which.matches, _read(broker, queue, ids))) if ids else []
    return found, len(ids), start + len(ids) if len(ids) == min(most, PAGE) else None


def count(broker: FleetBroker, queues: Sequence[str], which: Filter = Filter()) -> int | None:
    """How many letters match, None where every body would have to be read to know."""
    if which.reads_bodies:
        return None
    lowest, highest = which.span()
    return sum(int(broker.client.zcount(keys.dead(broker.namespace, queue), lowest, highest)) for queue in queues)


def select(
    broker: FleetBroker, queues: Sequence[str], which: Filter = Filter(), most: int | None = None
) -> list[Place]:
    """The places of the matching letters, oldest first, at most so many."""
    return [letter.place for letter in islice(letters(broker, queues, which), most)]


def find(broker: FleetBroker, queues: Sequence[str], wanted: str) -> DeadLetter | None:
    """The letter with this id in Redis, looked up; else the first with this message id, searched for."""
    with broker.client.pipeline(transaction=False) as pipe:
        for queue in queues:
            pipe.zscore(keys.dead(broker.namespace, queue), _raw(wanted))
        scores = pipe.execute()
    for queue, score in zip(queues, scores, strict=True):
        if score is not None:
            return next(_read(broker, queue, [_raw(wanted)]), None)
    for letter in letters(broker, queues):
        if wanted == letter.id or (letter.message and letter.message.message_id == wanted):
            return letter
    return None


def read(broker: FleetBroker, places: Iterable[Place]) -> Iterator[DeadLetter]:
    """The letters at these places that are still there."""
    for queue, chunk in _chunks(places):
        yield from _read(broker, queue, [_raw(place.id) for place in chunk])


def requeue(
    broker: FleetBroker,
    places: Iterable[Place],
    *,
    a_second: float,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[Outcome]:
    """Queue letters again, as fresh messages under the same id, so many a second; yields what became of each.

    Letters that cannot be read stay: no worker could read them either.
    """
    for queue, chunk in _chunks(places):
        read_now = {letter.place: letter for letter in _read(broker, queue, [_raw(place.id) for place in chunk])}
        for place in chunk:
            letter = read_now.pop(place, None)
            if letter is None:
                yield "gone"
            elif letter.message is None:
                yield "unreadable"
            else:
                yield "moved" if _revive(broker, queue, [(place, _fresh(queue, letter.message))]) else "gone"
                pause(1 / a_second)


def discard(broker: FleetBroker, places: Iterable[Place]) -> Iterator[int]:
    """Drop letters for good, a bounded number a script; yields how many of each were still there."""
    for queue, chunk in _chunks(places):
        yield _revive(broker, queue, [(place, b"") for place in chunk])


def _fresh(queue: str, message: Message[Any]) -> bytes:
    options = {name: value for name, value in message.options.items() if name not in _RESET}
    options[wire.DUE_AT] = wire.to_ms(clock.real_now())
    fresh: Message[Any] = Message(
        queue_name=queue,
        actor_name=message.actor_name,
        args=message.args,
        kwargs=message.kwargs,
        options=options,
        message_id=message.message_id,
        message_timestamp=message.message_timestamp,
    )
    return as_it_lay(fresh)


def _read(broker: FleetBroker, queue: str, ids: Sequence[bytes]) -> Iterator[DeadLetter]:
    """The letters with these ids; one that was moved meanwhile is left out."""
    ns = broker.namespace
    with broker.client.pipeline(transaction=True) as pipe:
        pipe.zmscore(keys.dead(ns, queue), ids)  # type: ignore[arg-type]  # it takes bytes as well
        pipe.hmget(keys.dead_bodies(ns, queue), ids)
        pipe.hmget(keys.dead_details(ns, queue), ids)
        rows = zip(ids, *pipe.execute(), strict=True)
    for id, died, body, known in rows:
        if died is not None:
            place = Place(queue, id.decode(errors="surrogateescape"))
            yield DeadLetter(place, wire.from_ms(int(died)), _message(body), json.loads(known) if known else {})


def _message(body: bytes | None) -> Message[Any] | None:
    """None for what no worker could read either."""
    try:
        message = as_it_lies(body or b"")
    except (DecodeError, TypeError, KeyError):
        return None
    typed = isinstance(message.actor_name, str) and isinstance(message.message_id, str)  # decoding looks at no type
    return message if typed and isinstance(message.kwargs, dict) and isinstance(message.options, dict) else None


def _chunks(places: Iterable[Place]) -> Iterator[tuple[str, list[Place]]]:
    for queue, group in groupby(places, key=lambda place: place.queue):
        while chunk := list(islice(group, PAGE)):
            yield queue, chunk


def _raw(id: str) -> bytes:
    return id.encode(errors="surrogateescape")


def _revive(broker: FleetBroker, queue: str, rows: Sequence[tuple[Place, bytes]]) -> int:
    ns = broker.namespace
    asked = [keys.queue(ns, queue), keys.bodies(ns, queue)]
    asked += [keys.dead(ns, queue), keys.dead_bodies(ns, queue), keys.dead_details(ns, queue)]
    args: list[Any] = [keys.wake(ns), queue, *(part for place, body in rows for part in (_raw(place.id), body))]
    return int(broker.own_scripts.revive(keys=asked, args=args))


def kept(broker: FleetBroker, queue: str) -> tuple[timedelta, int]:
    """For how long, in night time, and how many letters of a queue are kept: what its lane says."""
    lane = broker.lanes.get(queue)
    return (lane.dead_kept_for, lane.dead_kept_most) if lane else (DEAD_KEPT_FOR, DEAD_KEPT_MOST)


def trim(broker: FleetBroker, queue: str, kept_for: timedelta | None = None, kept_most: int | None = None) -> int:
    """Drop what is older, in night time, or more than the queue's lane keeps, a bounded number; returns how many.

    Nothing is older while this clock and the server's are more than an hour apart: one that leapt would drop them all.
    """
    ns, (lanes_for, lanes_most) = broker.namespace, kept(broker, queue)
    kept_for = kept_for if kept_for is not None else lanes_for
    kept_most = kept_most if kept_most is not None else lanes_most
    asked = [keys.dead(ns, queue), keys.dead_bodies(ns, queue), keys.dead_details(ns, queue)]
    args = [wire.duration_ms(clock.to_real(kept_for)), kept_most, _TRIMMED_A_CALL, wire.to_ms(clock.real_now())]
    dropped = 0
    for _ in range(_CALLS_A_TRIM):
        dropped += (now := int(broker.own_scripts.trim(keys=asked, args=args)))
        if now < _TRIMMED_A_CALL:
            break
    return dropped
