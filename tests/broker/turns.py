"""Turns of a worker without its threads: the script asked directly, as `fleet.broker.pump` asks it."""

from __future__ import annotations

import json
from typing import Any

import redis

from fleet.broker import keys
from fleet.broker.scripts import Scripts
from tests.broker.station import QUEUE

End = tuple[str, bytes, bytes, bytes]  # kind, id, and the two values by kind


class Turns:
    """One worker id on one queue; remembers its last request, so that it can be repeated."""

    def __init__(self, client: redis.Redis, scripts: Scripts, namespace: str, worker: str) -> None:
        self._client, self._scripts, self._namespace, self.worker = client, scripts, namespace, worker
        self._number = 0
        self.deliveries: dict[bytes, bytes] = {}  # id -> number of its last delivery
        self._last: tuple[list[str], list[Any]] | None = None

    def take(self, wanted: int = 0, ends: list[End] | None = None) -> Any:
        """The script's answer to a turn with the next number."""
        self._number += 1
        ns = self._namespace
        asked = [keys.tombstone(ns, self.worker), keys.turn(ns, self.worker), keys.beats(ns), keys.heartbeats(ns)]
        asked += [keys.workers(ns), keys.awaited(ns), *keys.of_turn(ns, self.worker, QUEUE)]
        args: list[Any] = [self.worker, self._number, wanted, 1, 100, keys.wake(ns), 86_400, 1 if wanted else 0]
        args += [json.dumps([QUEUE]), 1, QUEUE]
        for kind, id, first, second in ends or []:
            args += [kind, 1, id, self.deliveries.get(id, b"0"), first, second]
        self._last = (asked, args)
        answer = self.repeat()
        self.deliveries |= {id: number for id, number, _ in _fetched(answer)}
        return answer

    def repeat(self) -> Any:
        """The script's answer to the last request, asked again."""
        assert self._last is not None
        asked, args = self._last
        return self._scripts.turn(keys=asked, args=args, client=self._client)


def fetched(answer: Any) -> list[tuple[bytes, bytes]]:
    """Ids and bodies out of an answer."""
    return [(id, body) for id, _, body in _fetched(answer)]


def _fetched(answer: Any) -> list[tuple[bytes, bytes, bytes]]:
    if answer in (b"fenced", b"old"):
        return []
    _flags, _due, _broken, *rest = answer
    return list(zip(rest[1::4], rest[2::4], rest[3::4], strict=True))
