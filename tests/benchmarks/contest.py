"""What a claim is made of, and how its figures are gathered: contenders take turns, medians are compared.

A claim's module has `CLAIM`, a `Claim`. Nothing is asserted of a figure: its aim is printed beside it, with "met" or
"NOT MET".

Not guaranteed: that a figure is not disturbed by what else the machine does; the spread of each is printed beside its
median, and the load average that each claim began with.
"""

from __future__ import annotations

import os
import statistics
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tests.benchmarks.stage import Stage


@dataclass(frozen=True)
class Contender:
    """One way to do the work.

    `prefetch` 0 is the default of Dramatiq's worker, twice its threads; `connections` 0 is redis-py's own limit. One of
    ours that is `whole` has the middleware of `fleet work` in place of Dramatiq's default.
    """

    label: str
    kind: Literal["ours", "stock", "huey"]
    prefetch: int = 0
    connections: int = 0
    whole: bool = False


OURS = Contender("ours", "ours")
STOCK = Contender("stock", "stock")
OURS_256 = Contender("ours, prefetch 256", "ours", 256)
OURS_WHOLE = Contender("ours, with its whole middleware", "ours", whole=True)
STOCK_256 = Contender("stock, prefetch 256", "stock", 256)
HUEY = Contender("huey", "huey")

Figures = dict[str, float]
TRIES = 2


@dataclass(frozen=True)
class Aim:
    """What a figure should be: so many times better than the other's, and ours at most or at least so much."""

    ratio: float | None = None
    at_most: float | None = None
    at_least: float | None = None

    def __str__(self) -> str:
        wanted = [f">= {self.ratio:g}x"] if self.ratio is not None else []
        wanted += [f"<= {self.at_most:g}"] if self.at_most is not None else []
        wanted += [f">= {self.at_least:,.0f}"] if self.at_least is not None else []
        return ", ".join(wanted)

    def met(self, ours: float, ratio: float | None) -> bool:
        """Whether it was reached; `ratio` is None where the better of the two is nought."""
        return (
            (self.ratio is None or ratio is None or ratio >= self.ratio)
            and (self.at_most is None or ours <= self.at_most)
            and (self.at_least is None or ours >= self.at_least)
        )


@dataclass(frozen=True)
class Pair:
    """Ours beside another's, and the aims by figure."""

    ours: Contender = OURS
    other: Contender = STOCK
    aims: Mapping[str, Aim] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A kind of work by name. `measure` does it once and returns figures by name.

    `pins_server` says that the server must be our own, since it is bound to a CPU; `wants_database` that it needs a
    PostgreSQL too; `once` that it takes minutes, and is not repeated.
    """

    name: str
    work: str
    measure: Callable[[Stage, Contender], Figures]
    compared: tuple[Pair, ...]
    higher_is_better: bool = False
    pins_server: bool = False
    wants_database: bool = False
    once: bool = False


@dataclass(frozen=True)
class Comparison:
    """One line of the table; the ratio says how many times better ours is."""

    figure: str
    ours: str
    other: str
    ratio: float | None
    aim: str
    verdict: str

    def cells(self) -> tuple[str, ...]:
        """As printed."""
        ratio = "-" if self.ratio is None else f"{self.ratio:,.3g}x"
        return (self.figure, self.ours, self.other, ratio, self.aim, self.verdict)


@dataclass(frozen=True)
class Outcome:
    """A claim's lines, the machine's load average over a minute when it began, and what rounds that failed said."""

    claim: Claim
    load: float
    lines: list[Comparison]
    failed: tuple[str, ...] = ()


def play(claim: Claim, stage: Stage, rounds: int) -> Outcome:
    """Measure every contender `rounds` times in turn, another one first in each; prints each as it comes.

    A round that raises is told and kept in words, and the others go on: an hour is not lost for it. Who failed twice is
    not asked again, as each failure may be minutes of waiting.
    """
    contenders = list(dict.fromkeys(one for pair in claim.compared for one in (pair.ours, pair.other)))
    seen: dict[Contender, dict[str, list[float]]] = {contender: defaultdict(list) for contender in contenders}
    failed: dict[Contender, list[str]] = {contender: [] for contender in contenders}
    load = os.getloadavg()[0]
    print(f"\n{claim.name}: {claim.work} (load average {load:.2f})", flush=True)
    for turn in range(1 if claim.once else rounds):
        first = turn % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            if len(failed[contender]) == TRIES:
                continue
            try:
                try:
                    figures = claim.measure(stage, contender)
                finally:
                    stage.clear()
            except Exception as error:
                failed[contender].append(words := last_line(error))
                print(f"  {turn + 1}. {contender.label}: failed: {words}", flush=True)
                continue
            for name, value in figures.items():
                seen[contender][name].append(value)
            shown = ", ".join(f"{name} {_number(value)}" for name, value in figures.items())
            print(f"  {turn + 1}. {contender.label}: {shown}", flush=True)
    lines = [
        _compare(claim, pair, name, seen) for pair in claim.compared for name in seen[pair.ours] or seen[pair.other]
    ]
    return Outcome(claim, load, lines, tuple(f"{one.label}: {said}" for one, told in failed.items() for said in told))


def last_line(error: Exception) -> str:
    """What a traceback ends with, on one line and not longer than a table bears."""
    return " ".join("".join(traceback.format_exception_only(error)).split())[:300]


def _compare(claim: Claim, pair: Pair, name: str, seen: Mapping[Contender, Mapping[str, list[float]]]) -> Comparison:
    ours, other = seen[pair.ours].get(name, []), seen[pair.other].get(name, [])
    shown, beside = _shown(pair.ours, ours), _shown(pair.other, other)
    if not ours or not other:  # one does no such thing, or failed, which stands beside
        return Comparison(name, shown, beside, None, "", "")
    mine, theirs = statistics.median(ours), statistics.median(other)
    better, worse = (mine, theirs) if claim.higher_is_better else (theirs, mine)
    ratio = better / worse if worse else None
    aim = pair.aims.get(name)
    verdict = "" if aim is None else "met" if aim.met(mine, ratio) else "NOT MET"
    return Comparison(name, shown, beside, ratio, "" if aim is None else str(aim), verdict)


def _shown(contender: Contender, values: list[float]) -> str:
    if not values:
        return "-"
    spread = f" ({_number(min(values))} to {_number(max(values))})" if len(values) > 1 else ""
    return f"{contender.label}: {_number(statistics.median(values))}{spread}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
