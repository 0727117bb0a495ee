"""The ledger: what became of each slot of an entry, as the beat's scripts wrote it, and what people did to the entry.

A line may stand for many slots, from one to another. Of each entry the last `LEDGER_LENGTH` lines are kept, a few more
at times.

Not guaranteed: that a fired slot's message has run; its end stands where the workers record it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import redis

from fleet import wire
from fleet.broker import keys

LEDGER_LENGTH = 10_000  # a week of an entry that comes every minute; full, about a megabyte

Verdict = Literal["fired", "coalesced", "expired", "paused", "overlapped"]
Event = Literal["new", "manual", "pause", "resume"]
VERDICTS: tuple[Verdict, ...] = ("fired", "coalesced", "expired", "paused", "overlapped")


@dataclass(frozen=True)
class LedgerLine:
    """A verdict on `count` slots, from one to another; or an event, which counts none.

    `at` is when it was written, by the server's clock; `first` and `last` are night time. `revision` is the one of the
    entry that the slots are of. What a person did has `by`, and perhaps `because`.
    """

    entry: str
    verdict: Verdict | Event
    first: datetime
    last: datetime
    count: int
    at: datetime
    token: str = ""
    epoch: int = 0
    revision: int = 0
    by: str = ""
    because: str = ""

    @property
    def judges(self) -> bool:
        """Whether it is a verdict on slots."""
        return self.verdict in VERDICTS


def read(
    client: redis.Redis, namespace: str, entry: str, most: int | None = None, since: datetime | None = None
) -> list[LedgerLine]:
    """An entry's lines, oldest first; with `most` only the last so many, with `since` those written from then on.

    `since` is by the server's clock, as `at` is.
    """
    lowest = "-" if since is None else max(0, wire.to_ms(since))
    found: Any = client.xrevrange(keys.ledger(namespace, entry), min=lowest, count=most)
    return [_line(entry, id, fields) for id, fields in reversed(found)]


def last(client: redis.Redis, namespace: str, entries: Sequence[str]) -> dict[str, LedgerLine]:
    """The last line of each of these entries that has one; one round trip."""
    with client.pipeline(transaction=False) as pipe:
        for entry in entries:
            pipe.xrevrange(keys.ledger(namespace, entry), count=1)
        found = pipe.execute()
    return {entry: _line(entry, *lines[0]) for entry, lines in zip(entries, found, strict=True) if lines}


def since(client: redis.Redis, namespace: str, entries: Iterable[str], instant: datetime) -> list[LedgerLine]:
    """The lines of these entries that were written since a real instant, by the server's clock; one round trip."""
    names = list(entries)
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.xrange(keys.ledger(namespace, name), min=wire.to_ms(instant))
        found: Any = pipe.execute()
    return [_line(name, id, fields) for name, rows in zip(names, found, strict=True) for id, fields in rows]


def _line(entry: str, id: bytes, fields: dict[bytes, bytes]) -> LedgerLine:
    told: dict[str, Any] = {name.decode(): value.decode() for name, value in fields.items()}
    return LedgerLine(
        entry,
        told["verdict"],
        wire.from_ms(int(told["from"])),
        wire.from_ms(int(told["to"])),
        int(told["count"]),
        wire.from_ms(int(id.split(b"-")[0])),
        told.get("token", ""),
        int(told.get("epoch") or 0),
        int(told.get("revision") or 0),
        told.get("by", ""),
        told.get("because", ""),
    )
