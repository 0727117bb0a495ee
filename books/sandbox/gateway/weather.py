"""What goes wrong at the sandbox's gateway: answers that come late, or never, on either side of taking the thing.

Every draw is a function of (seed, key, attempt), not of the order in which requests come. What is remembered of a key
is what must end: a thing that is sent meets at most two faults, one that is asked for at most one. A test asks for
faults of its own with `script`, which go before the drawn ones. Latencies and waits are night durations.

Not guaranteed: the same weather after a restart of the server; the attempts are counted anew.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from hashlib import blake2b
from statistics import NormalDist
from typing import Literal

SEND_FAULTS, ASK_FAULTS = 0.3, 0.1  # shares of requests; high, since an evening has few of them
MOST_FAULTS = {"send": 2, "ask": 1}  # a key
_MEDIAN_SECONDS, _SIGMA = 4.0, 0.6
_LONGEST_WAIT = 60  # seconds of Retry-After
_NORMAL = NormalDist()

Act = Literal["send", "ask"]


class Fault(StrEnum):
    """What a request meets; of the first three the sender cannot tell whether the thing was taken."""

    LATE = "late"  # taken; the answer comes long after the sender has gone
    SILENT = "silent"  # taken; the connection is dropped without an answer
    FAILED = "failed"  # taken; answered with 500
    DROPPED = "dropped"  # not taken; the connection is dropped without an answer
    AWAY = "away"  # not taken; 503
    LIMITED = "limited"  # not taken; 429 with Retry-After


_DRAWN: dict[Act, tuple[Fault, ...]] = {"send": tuple(Fault), "ask": (Fault.DROPPED, Fault.AWAY)}


@dataclass(frozen=True, slots=True)
class Outlook:
    """What one request will meet; `wait` is what a limit tells."""

    attempt: int
    latency: timedelta
    fault: Fault | None
    wait: timedelta


class Weather:
    """The seeded weather of one server's life; `late` is how long a late answer takes."""

    def __init__(self, seed: int, late: timedelta, *, calm: bool) -> None:
        self._seed, self._calm = seed, calm
        self.late = late
        self._attempts: Counter[tuple[Act, str]] = Counter()
        self._faults: Counter[tuple[Act, str]] = Counter()
        self._scripted: dict[Act, list[Fault | None]] = {"send": [], "ask": []}

    def script(self, act: Act, faults: list[Fault | None]) -> None:
        """What the next requests meet, in the order they come; None is a good answer at once."""
        self._scripted[act] = list(faults)

    def outlook(self, act: Act, key: str) -> Outlook:
        """Of the key's next attempt to send it, or to ask for it."""
        self._attempts[act, key] += 1
        attempt = self._attempts[act, key]
        if self._scripted[act]:
            return Outlook(attempt, timedelta(0), self._scripted[act].pop(0), timedelta(seconds=1))
        drawn = f"{act} {key} {attempt}"
        fault = self._fault(act, key, drawn)
        if fault is not None:
            self._faults[act, key] += 1
        latency = _MEDIAN_SECONDS * math.exp(_SIGMA * _NORMAL.inv_cdf(self._draw("latency", drawn)))
        wait = timedelta(seconds=1 + int(_LONGEST_WAIT * self._draw("wait", drawn)))
        return Outlook(attempt, timedelta(0) if self._calm else timedelta(seconds=latency), fault, wait)

    def _fault(self, act: Act, key: str, drawn: str) -> Fault | None:
        share, kinds = (SEND_FAULTS if act == "send" else ASK_FAULTS), _DRAWN[act]
        draw = self._draw("fault", drawn)
        if self._calm or draw >= share or self._faults[act, key] >= MOST_FAULTS[act]:
            return None
        return kinds[int(draw / share * len(kinds))]

    def _draw(self, kind: str, key: str) -> float:
        """A number in (0, 1) that belongs to the key."""
        digest = blake2b(f"{self._seed} {kind} {key}".encode(), digest_size=8).digest()
        return (int.from_bytes(digest) + 0.5) / 2**64
