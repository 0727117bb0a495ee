"""What a claim is made of, and how its figures are gathered: contenders take turns, medians are compared.

A claim's module has `CLAIM`, a `Claim`. Not guaranteed: that a figure is not disturbed by what else the machine does;
the spread of each is printed beside its median.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.benchmarks.stage import Stage


@dataclass(frozen=True)
class Contender:
    """One way to do the work; `prefetch` 0 is the default of Dramatiq's worker, twice its threads."""

    label: str
    kind: Literal["ours", "stock"]
    prefetch: int = 0


OURS = Contender("ours", "ours")
STOCK = Contender("stock", "stock")
OURS_256 = Contender("ours, prefetch 256", "ours", 256)
STOCK_256 = Contender("stock, prefetch 256", "stock", 256)

Figures = dict[str, float]


@dataclass(frozen=True)
class Claim:
    """A kind of work. `measure` does it once and returns figures by name; `compared` pairs ours and another's."""

    work: str
    aim: str
    measure: Callable[[Stage, Contender], Figures]
    compared: tuple[tuple[Contender, Contender], ...] = ((OURS, STOCK),)
    higher_is_better: bool = True


@dataclass(frozen=True)
class Comparison:
    """One line of the table; `ratio` says how many times better ours is."""

    work: str
    figure: str
    ours: str
    other: str
    ratio: float
    aim: str

    def cells(self) -> tuple[str, ...]:
        return (self.work, self.figure, self.ours, self.other, f"{self.ratio:.1f}x", self.aim)


def play(claim: Claim, stage: Stage, rounds: int) -> list[Comparison]:
    """Measure every contender `rounds` times in turn; prints each round as it comes."""
    contenders = list(dict.fromkeys(contender for pair in claim.compared for contender in pair))
    seen: dict[Contender, dict[str, list[float]]] = {contender: defaultdict(list) for contender in contenders}
    print(f"\n{claim.work}", flush=True)
    for turn in range(rounds):
        for contender in contenders:
            figures = claim.measure(stage, contender)
            stage.clear()
            for name, value in figures.items():
                seen[contender][name].append(value)
            shown = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
            print(f"  {turn + 1}/{rounds} {contender.label}: {shown}", flush=True)
    return [
        _compare(claim, name, (ours, seen[ours][name]), (other, seen[other][name]))
        for ours, other in claim.compared
        for name in seen[ours]
    ]


def _compare(
    claim: Claim, name: str, ours: tuple[Contender, list[float]], other: tuple[Contender, list[float]]
) -> Comparison:
    mine, theirs = statistics.median(ours[1]), statistics.median(other[1])
    better, worse = (mine, theirs) if claim.higher_is_better else (theirs, mine)
    return Comparison(claim.work, name, _shown(*ours), _shown(*other), better / worse if worse else 0.0, claim.aim)


def _shown(contender: Contender, values: list[float]) -> str:
    spread = f" ({min(values):,.3g}-{max(values):,.3g})" if len(values) > 1 else ""
    return f"{contender.label}: {statistics.median(values):,.4g}{spread}"
