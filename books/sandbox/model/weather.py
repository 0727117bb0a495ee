"""What goes wrong at the sandbox model, and how long it takes: latency with a long tail, limits, failures, bad JSON.

Every draw is a function of (seed, run, step, attempt), not of the order in which requests come. An attempt is the n-th
request of a step that the server has seen. What is remembered of a step is what must not happen again: it meets at
most two faults, and after an answer in bad JSON the next one is good. Latencies and waits are night durations.

Not guaranteed: the same weather after a restart of the server; the attempts are counted anew.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from hashlib import blake2b
from random import Random
from statistics import NormalDist

LIMITS, FAILURES, MALFORMED = 0.01, 0.005, 0.02  # shares of first attempts; of answers
MOST_FAULTS = 2  # a step
_MEDIAN_SECONDS, _SIGMA = 5.5, 0.796  # the 99th percentile is 35 s
_TAIL, _TAIL_SECONDS = 0.0008, (60.0, 660.0)
_LONGEST_WAIT = 60  # seconds of Retry-After
_NORMAL = NormalDist()


class Fault(StrEnum):
    """What a request meets instead of a good answer."""

    LIMIT = "limit"  # 429 with Retry-After, at once
    FAILURE = "failure"  # 500, after the latency of an answer
    MALFORMED = "malformed"  # an answer whose JSON is broken off


@dataclass(frozen=True, slots=True)
class Outlook:
    """What one request will meet; `wait` is what a limit tells."""

    attempt: int
    latency: timedelta
    fault: Fault | None
    wait: timedelta


class Weather:
    """The seeded weather of one server's life."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._faults: defaultdict[tuple[str, str], list[Fault]] = defaultdict(list)

    def of_run(self, run: str) -> Random:
        """What a run's own choices are drawn from, the same at each of its steps."""
        return Random(f"{self._seed} {run}")

    def outlook(self, run: str, step: str, *, has_json: bool) -> Outlook:
        """Of the step's next attempt; `has_json`: whether its answer has JSON that can be broken off."""
        self._attempts[run, step] += 1
        attempt = self._attempts[run, step]
        key = f"{run} {step} {attempt}"
        fault = self._fault(run, step, attempt, key, has_json)
        if fault is not None:
            self._faults[run, step].append(fault)
        wait = timedelta(seconds=1 + int(_LONGEST_WAIT * self._draw("wait", key)))
        return Outlook(attempt, self._latency(key), fault, wait)

    def _fault(self, run: str, step: str, attempt: int, key: str, has_json: bool) -> Fault | None:
        met = self._faults.get((run, step), [])
        if len(met) >= MOST_FAULTS:
            return None
        draw = self._draw("fault", key)
        if attempt == 1 and draw < LIMITS + FAILURES:
            return Fault.LIMIT if draw < LIMITS else Fault.FAILURE
        repaired = bool(met) and met[-1] is Fault.MALFORMED
        return Fault.MALFORMED if has_json and not repaired and self._draw("malformed", key) < MALFORMED else None

    def _latency(self, key: str) -> timedelta:
        if self._draw("tail", key) < _TAIL:
            shortest, longest = _TAIL_SECONDS
            return timedelta(seconds=shortest + (longest - shortest) * self._draw("tail length", key))
        return timedelta(seconds=_MEDIAN_SECONDS * math.exp(_SIGMA * _NORMAL.inv_cdf(self._draw("latency", key))))

    def _draw(self, kind: str, key: str) -> float:
        """A number in (0, 1) that belongs to the key."""
        digest = blake2b(f"{self._seed} {kind} {key}".encode(), digest_size=8).digest()
        return (int.from_bytes(digest) + 0.5) / 2**64
