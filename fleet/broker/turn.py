"""What a turn asks of `lua/turn.lua`, and what it answers; keys, arguments and bytes stand here and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleet.broker import keys
from fleet.broker.ends import End, Fetched
from fleet.clock import clock

_PROMOTED = 100  # delayed messages a queue
_REMEMBERED_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Answer:
    """What a turn did. `flags` has a letter an end, `due` is in seconds, `broken` is queue -> error."""

    flags: str
    due: float | None
    broken: dict[str, str]
    fetched: list[Fetched]


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn in the words that are asked until Redis answers: `names` are its queues, first those looked at."""

    number: int
    wanted: int
    names: list[str]
    looked_at: list[str]
    ends: list[End]
    keys: list[str]
    args: list[Any]


class Turns:
    """Builds the turns of a worker process, or of one that runs suspects `alone`; a worker id's keys are built once."""

    def __init__(self, namespace: str, *, alone: bool = False) -> None:
        self._namespace, self._alone = namespace, alone
        self._worker, self._own = "", list[str]()
        self._of_queue: dict[str, list[str]] = {}

    def ask(
        self, worker: str, number: int, wanted: int, looked_at: list[str], served: Sequence[str], ends: list[End]
    ) -> Turn:
        """A turn that fetches up to `wanted` messages from the queues `looked_at`, and writes these ends."""
        names = [*looked_at, *dict.fromkeys(end.queue for end in ends if end.queue not in looked_at)]
        ns = self._namespace
        if self._worker != worker:  # building a hundred keys anew cost as much as the rest of a turn
            self._worker, self._of_queue = worker, {}
            self._own = [keys.tombstone(ns, worker), keys.turn(ns, worker), keys.beats(ns), keys.heartbeats(ns)]
            self._own += [keys.workers(ns), keys.awaited(ns)]
        asked = list(self._own)
        for name in names:
            if name not in self._of_queue:
                self._of_queue[name] = keys.of_turn(ns, worker, name, alone=self._alone)
            asked += self._of_queue[name]
        # What is due belongs to the queue; who runs its suspects leaves it there.
        promoted = 0 if self._alone else _PROMOTED
        wall = int(clock.real_now().timestamp() * 1000)
        args: list[Any] = [worker, number, wanted, wall, promoted, keys.wake(ns), _REMEMBERED_SECONDS]
        args += [len(looked_at), json.dumps(sorted(served)), len(names), *names]
        index = {name: place for place, name in enumerate(names, start=1)}
        for end in ends:
            args += (end.kind, index[end.queue], _bytes(end.id), end.delivery, end.first, end.second)
        return Turn(number, wanted, names, looked_at, ends, asked, args)

    def read(self, worker: str, names: Sequence[str], answer: Sequence[bytes]) -> Answer:
        """What the script answered to a turn over these queues."""
        flags, due, broken, *rest = answer
        places = [line.partition(" ") for line in _text(broken).splitlines()]
        return Answer(
            flags.decode(),
            int(due) / 1000 if int(due) >= 0 else None,
            {names[int(place) - 1]: error for place, _, error in places},
            [
                Fetched(worker, names[int(queue) - 1], _text(id), int(delivery), body)
                for queue, id, delivery, body in zip(rest[::4], rest[1::4], rest[2::4], rest[3::4], strict=True)
            ],
        )


def _text(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
