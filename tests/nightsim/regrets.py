"""Regret: what a night cost more than the cheapest known way through the same night; by policy, kind and seed.

The cheapest known way is the least of the policies compared, the balancer, and 54 plans that know when the sync runs
and when people come. No cost is below zero, so where somebody paid nothing the plans need not be played.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np

from tests.nightsim.night import KINDS, Drawn, make
from tests.nightsim.played import ALL, NOT_NICED, RULES, Guards, baseline, measured, oracle
from tests.nightsim.policies import DECIDED, WITHOUT

BALANCER = "balancer"
_NEVER = timedelta(days=1_000)


def without_a_guard(like: Guards) -> dict[str, Guards]:
    """The rule without one of its guards, each in turn."""
    found = {
        "hot": replace(like, rules=replace(RULES, hot=_NEVER)),
        "calm": replace(like, rules=replace(RULES, calm_ticks=0)),
        "floor": replace(like, rules=replace(RULES, safety=0.0)),
        "blind": replace(like, rules=replace(RULES, stale=_NEVER, frozen_ticks=10**9)),
        "places kept for people": replace(like, kept=0),
    }
    return found | ({"reserve": replace(like, reserve=0.0)} if like.reserve else {})


@dataclass(frozen=True)
class Night:
    """The figures of a night by policy, and the cheapest known cost."""

    kind: str
    seed: int
    figures: Mapping[str, Mapping[str, float]]
    base: Mapping[str, float]
    cheapest: float

    def regret(self, policy: str = BALANCER) -> float:
        return self.figures[policy]["cost"] - self.cheapest


def nights(cores: int, seeds: Iterable[int], *, compared: bool, guards: bool = False) -> list[Night]:
    """Every kind of night for each seed; `compared` with the schedule, and without each of the `guards`."""
    return [_night(kind, seed, make(kind, seed), cores, compared, guards) for kind in KINDS for seed in seeds]


def _night(kind: str, seed: int, drawn: Drawn, cores: int, compared: bool, guards: bool) -> Night:
    base = baseline(drawn, cores)
    figures = {BALANCER: measured(drawn, DECIDED, cores, base)}
    if compared:
        figures |= {name: measured(drawn, policy, cores, base) for name, policy in WITHOUT.items()}
    if guards:
        tried = {f"without {name}": guards for name, guards in without_a_guard(ALL).items()} | {"not niced": NOT_NICED}
        tried |= {f"not niced, without {name}": guards for name, guards in without_a_guard(NOT_NICED).items()}
        for name, has in tried.items():
            figures[name] = measured(drawn, has.policy, cores, base, has)
    cheapest = min(found["cost"] for found in figures.values())
    if cheapest > 0:
        cheapest = min(cheapest, oracle(drawn, cores, base))
    return Night(kind, seed, figures, base, cheapest)


def table(found: list[Night]) -> list[str]:
    """A line a policy, median and worst over all nights, as a table of Markdown."""
    lines = [
        "| | regret | p99 of people's waits, s | sync later by, min | rows left at 07:00, % | expired, % | turns |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for policy in found[0].figures:
        columns = [
            np.array([night.regret(policy) for night in found]),
            *(_column(found, policy, name) for name in ("wait", "sync", "left", "expired", "turns")),
        ]
        columns[2] = columns[2] - np.array([night.base["sync"] for night in found])
        figures = (f"{np.median(column):.1f} / {column.max():.1f}" for column in columns)
        lines.append(f"| {policy} | {' | '.join(figures)} |")
    return lines


def by_kind(found: list[Night], policy: str = BALANCER) -> list[str]:
    """A line a kind of night: a policy's median and worst regret."""
    lines = []
    for kind in KINDS:
        column = np.array([night.regret(policy) for night in found if night.kind == kind])
        lines.append(f"| {kind} | {np.median(column):.1f} / {column.max():.1f} |")
    return lines


def _column(found: list[Night], policy: str, name: str) -> np.ndarray:
    return np.array([night.figures[policy][name] for night in found])
