"""What the jobs of `app/` wrote of themselves, read back: the judge that does not ask the code under test."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One run of a job's body; instants are CLOCK_MONOTONIC's, `left` names what threw it out, None if nothing did."""

    name: str
    pid: int
    id: str
    begun: float
    alone: bool
    release: str
    ended: float | None = None
    left_at: float | None = None
    left: str | None = None

    @property
    def over(self) -> float | None:
        return self.ended or self.left_at


@dataclass(frozen=True)
class Loss:
    """One call of `on_lost`; `after` is whether no process that ran the message lived any more."""

    id: str
    pid: int
    at: float
    reason: str
    after: bool


class Journal:
    """Reads the file anew at each question; its lines stand in the order they were written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def runs(self, prefix: str = "") -> list[Run]:
        """Every run so far of the jobs whose name begins so, in the order they began."""
        begun: dict[str, Run] = {}
        for words in self._lines():
            event, name, pid, id, at, run, place, release = words
            if event == "begin":
                begun[run] = Run(name, int(pid), id, float(at), place == "alone", release)
            elif event == "end":
                begun[run] = replace(begun[run], ended=float(at))
            elif event.startswith("left:"):
                begun[run] = replace(begun[run], left_at=float(at), left=event.partition(":")[2])
        return [run for run in begun.values() if run.name.startswith(prefix)]

    def by_id(self, prefix: str = "") -> dict[str, list[Run]]:
        found: dict[str, list[Run]] = defaultdict(list)
        for run in self.runs(prefix):
            found[run.id].append(run)
        return dict(found)

    def ended(self, prefix: str = "") -> set[str]:
        """The ids with a run that came to its end."""
        return {run.id for run in self.runs(prefix) if run.ended is not None}

    def running(self, prefix: str = "") -> list[Run]:
        """The runs without a last line: they go on, or their process died."""
        return [run for run in self.runs(prefix) if run.over is None]

    def losses(self) -> list[Loss]:
        found = []
        for event, _, pid, id, at, *_ in self._lines():
            if event.startswith("lost:"):
                _, reason, where = event.split(":")
                found.append(Loss(id, int(pid), float(at), reason, where == "after"))
        return found

    def _lines(self) -> list[list[str]]:
        written = self._path.read_text() if self._path.exists() else ""
        whole = written[: written.rfind("\n") + 1]  # a line may be read while it is written
        return [line.split() for line in whole.splitlines()]


def reruns(by_id: dict[str, list[Run]]) -> list[tuple[Run, Run]]:
    """Each run and the next one of the same message."""
    return [pair for runs in by_id.values() for pair in pairwise(runs)]


def beside(run: Run, runs: Iterable[Run]) -> list[Run]:
    """What ran in the same process at the same time."""
    until = run.over or math.inf
    others = [other for other in runs if other.pid == run.pid and other != run]
    return [other for other in others if other.begun < until and (other.over or math.inf) > run.begun]


def spread(seconds: Iterable[float]) -> str:
    """Median, 99th percentile and longest of some times, for a person."""
    found: Sequence[float] = sorted(seconds)
    if not found:
        return "none"
    p99 = found[min(len(found) - 1, int(len(found) * 0.99))]
    return f"n={len(found)} p50={statistics.median(found):.2f}s p99={p99:.2f}s max={found[-1]:.2f}s"
