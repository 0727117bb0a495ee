"""The dead letters: read a page at a time, queued again at a bounded rate, discarded, and kept for a while only.

A dead letter is the message as it was (stock tools read it), and beside it why, where and when it died. Letters that a
stock worker made have no details; what their body says is shown.

Not guaranteed: that a listing and what follows see the same letters. Each is moved by its id, once, if it is still
there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dramatiq import Message
from dramatiq.errors import DecodeError

from fleet import wire
from fleet.broker import keys
from fleet.broker.broker import FleetBroker
from fleet.clock import clock

PAGE = 200
KEPT_FOR = timedelta(days=14)
KEPT_MOST = 100_000
_TRIMMED_A_CALL = 500
_RESET = ("retries", "traceback", "requeue_timestamp", "hook_failures", "parkings", wire.EXPIRES_AT)
"""Options that a letter leaves behind: it begins anew, and a window that has passed does not drop it again."""


@dataclass(frozen=True)
class DeadLetter:
    """One letter; `message` is None where its bytes cannot be read. `died` is real time."""

    queue: str
    id: str
    died: datetime
    message: Message[Any] | None
    body: bytes
    details: dict[str, Any]

    @property
    def actor(self) -> str:
        return self.message.actor_name if self.message else str(self.details.get("actor", "?"))

    @property
    def reason(self) -> str:
        return str(self.details.get("reason", "failed"))

    @property
    def exception(self) -> str:
        """What was raised, as far as it is known."""
        traceback = (self.message.options.get("traceback") if self.message else None) or ""
        return str(self.details.get("exception") or traceback.strip().rpartition("\n")[2] or "-")


@dataclass(frozen=True)
class Filter:
    """Which letters; what is not given matches all. `argument` is a part of one argument's JSON."""

    actor: str | None = None
    reason: str | None = None
    older_than: timedelta | None = None
    argument: str | None = None

    def matches(self, letter: DeadLetter) -> bool:
        if self.actor is not None and letter.actor != self.actor:
            return False
        if self.reason is not None and letter.reason != self.reason:
            return False
        if self.older_than is not None and clock.real_now() - letter.died < self.older_than:
            return False
        if self.argument is None:
            return True
        given = [*letter.message.args, *letter.message.kwargs.values()] if letter.message else []
        return any(self.argument in json.dumps(value, ensure_ascii=False) for value in given)


def letters(broker: FleetBroker, queues: Sequence[str], which: Filter = Filter()) -> Iterator[DeadLetter]:
    """The matching letters of these queues, oldest first; read a page a round trip, never a whole list."""
    ns = broker.namespace
    for queue in queues:
        start = 0
        while page := _page(broker, queue, start):
            ids = [raw for raw, _ in page]
            bodies: Any = broker.client.hmget(keys.dead_bodies(ns, queue), ids)
            details: Any = broker.client.hmget(keys.dead_details(ns, queue), ids)
            for row, body, known in zip(page, bodies, details, strict=True):
                letter = _letter(queue, row, body, known)
                if which.matches(letter):
                    yield letter
            start += len(page)


def _page(broker: FleetBroker, queue: str, start: int) -> list[tuple[bytes, float]]:
    key = keys.dead(broker.namespace, queue)
    page: Any = broker.client.zrange(key, start, start + PAGE - 1, withscores=True)
    return list(page)


def _letter(queue: str, page: tuple[bytes, float], body: bytes | None, details: bytes | None) -> DeadLetter:
    raw, died = page
    try:
        message: Message[Any] | None = Message.decode(body or b"")
    except (DecodeError, TypeError, KeyError):
        message = None
    known = json.loads(details) if details else {}
    return DeadLetter(queue, raw.decode(errors="replace"), wire.from_ms(int(died)), message, body or b"", known)


def requeue(broker: FleetBroker, chosen: Sequence[DeadLetter], *, a_second: float) -> int:
    """Queue letters again, as fresh messages under the same id, so many a second; returns how many.

    Letters that cannot be read stay: no worker could read them either.
    """
    moved = 0
    for letter in chosen:
        if letter.message is None:
            continue
        options = {name: value for name, value in letter.message.options.items() if name not in _RESET}
        fresh: Message[Any] = Message(
            queue_name=letter.queue,
            actor_name=letter.message.actor_name,
            args=letter.message.args,
            kwargs=letter.message.kwargs,
            options=options,
            message_id=letter.message.message_id,
            message_timestamp=letter.message.message_timestamp,
        )
        moved += _revive(broker, letter, fresh.encode())
        time.sleep(1 / a_second)
    return moved


def discard(broker: FleetBroker, chosen: Sequence[DeadLetter]) -> int:
    """Drop letters for good; returns how many were still there."""
    return sum(_revive(broker, letter, b"") for letter in chosen)


def _revive(broker: FleetBroker, letter: DeadLetter, body: bytes) -> int:
    ns, queue = broker.namespace, letter.queue
    asked = [keys.queue(ns, queue), keys.bodies(ns, queue)]
    asked += [keys.dead(ns, queue), keys.dead_bodies(ns, queue), keys.dead_details(ns, queue)]
    return int(broker.own_scripts.revive(keys=asked, args=[keys.wake(ns), queue, letter.id, body]))


def trim(broker: FleetBroker, queue: str, kept_for: timedelta = KEPT_FOR, kept_most: int = KEPT_MOST) -> int:
    """Drop what is too old or too many, a bounded number; returns how many."""
    ns = broker.namespace
    asked = [keys.dead(ns, queue), keys.dead_bodies(ns, queue), keys.dead_details(ns, queue)]
    return int(broker.own_scripts.trim(keys=asked, args=[wire.duration_ms(kept_for), kept_most, _TRIMMED_A_CALL]))
