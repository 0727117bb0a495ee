"""Plays a drawn night under a policy, and measures it; the balancer's own `decide` is asked at each minute of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from beat.balancer import BalancerRules, Places, Processors, Reading, State, decide
from fleet.allowance import Allowance
from fleet.window import Window
from tests.nightsim import engine
from tests.nightsim.night import Drawn, H
from tests.nightsim.policies import DECIDED, NOTHING, Policy, plans

_MIDNIGHT = datetime(2026, 11, 30, tzinfo=UTC)
_AI_CAP, _EVALS_CAP = 4, 6
_AI_COST, _EVALS_COST = timedelta(seconds=0.9), timedelta(seconds=11)
_PLACES, _KEPT = 10, 5
RULES = BalancerRules()


def _window(slot: float, closes: float) -> Window:
    at = [_MIDNIGHT + timedelta(seconds=s) for s in (0.5 * H, slot, 6.25 * H, 6.5 * H, closes)]
    return Window(*at)


_AI, _EVALS = _window(4 * H, 8 * H), _window(5 * H, 6.25 * H)


@dataclass(frozen=True)
class Guards:
    """The rule as it is tried; by default with all its guards, on lanes at nice 19."""

    rules: BalancerRules = RULES
    kept: int = _KEPT
    reserve: float = 0.0  # at nice 19 no core need be left free
    policy: Policy = DECIDED


ALL = Guards()
NOT_NICED = Guards(reserve=RULES.reserve, policy=DECIDED._replace(weight=1.0))


@dataclass(frozen=True)
class Played:
    """The engine's figures, the waits of people, and what was allowed to chains and to evals, a minute each."""

    out: np.ndarray
    waits: np.ndarray
    allowed: list[Allowance]
    evals: list[Allowance]

    @property
    def turns(self) -> int:
        """How often an entry's allowance turned round, of the one that did more often."""
        return max(_turns(self.allowed), _turns(self.evals))


def _turns(allowed: list[Allowance]) -> int:
    steps = np.sign(np.diff([0, *(granted.places for granted in allowed)]))
    moves = steps[steps != 0]
    return int(np.sum(moves[1:] != moves[:-1]))


def play(night: Drawn, policy: Policy, cores: int, guards: Guards = ALL) -> Played:
    """Play one night; the balancer's rule is asked where the policy is one that decides."""
    read, allowed, out, waits = np.zeros(12), np.zeros(2, np.int64), np.zeros(16), np.zeros(len(night.rt_arr))
    minutes: Iterator[int] = engine.run(
        float(cores), policy.weight, policy.mode, policy.parameters, policy.audit,
        night.t_sync, night.k_agg, night.lat_mult, *night.epi, night.pages, night.page_lat, night.ai_init,
        night.ai_per_acct, night.ai_dur, night.ev_lat, night.rt_arr, night.rt_lat, night.probe_fail, night.probe_lies,
        night.cpu_page, read, allowed, out, waits,
    )  # fmt: skip
    ai, evals = State(), State()
    of_both: tuple[list[Allowance], list[Allowance]] = [], []
    for minute, _ in enumerate(minutes):
        reading = _reading(read, _MIDNIGHT + timedelta(minutes=minute), cores, guards)
        of_ai, ai = decide(reading, ai, guards.rules)
        of_evals, evals = decide(_of_evals(read, reading, guards), evals, guards.rules)
        allowed[0], allowed[1] = of_ai.places, of_evals.places
        of_both[0].append(of_ai)
        of_both[1].append(of_evals)
    return Played(out, waits, *of_both)


def _reading(read: np.ndarray, now: datetime, cores: int, guards: Guards) -> Reading:
    return Reading(
        now=now,
        taken=_MIDNIGHT + timedelta(seconds=read[9]),
        window=_AI,
        cap=_AI_CAP,
        backlog=int(read[5]),
        cost=_AI_COST,
        wait=timedelta(seconds=read[2]),
        in_flight=bool(read[11] > 0 or read[0] > 0),
        counters=(read[10], read[0], read[5], read[8]),
        room=Processors(cores, read[3], guards.reserve),
    )


def _of_evals(read: np.ndarray, of_ai: Reading, guards: Guards) -> Reading:
    return Reading(
        now=of_ai.now,
        taken=of_ai.taken,
        window=_EVALS,
        cap=_EVALS_CAP,
        backlog=int(read[6]),
        cost=_EVALS_COST,
        wait=of_ai.wait,
        in_flight=of_ai.in_flight,
        counters=of_ai.counters,
        room=Places(_PLACES, guards.kept, int(read[8])),
    )


def measured(
    night: Drawn, policy: Policy, cores: int, base: dict[str, float] | None = None, guards: Guards = ALL
) -> dict[str, float]:
    """The figures of a night, and what it costs beside the same night without any elastic work (`base`).

    `cost` = 10 x (p99 of people's waits, s) + delay of the sync (min) + % of the rows that are not done at 07:00
    + 0.5 x % of the evals not done + delay of the invoices (min), each above the base's.
    """
    played = play(night, policy, cores, guards)
    out = played.out
    rows, evals = night.ai_init + int(night.ai_per_acct.sum()), len(night.ev_lat)
    found = {
        "wait": float(np.quantile(played.waits, 0.99)),
        "sync": (out[0] - night.t_sync) / 60 if out[0] > 0 else (8 * H - night.t_sync) / 60,
        "done": out[1] / H if out[4] >= rows else 8.5,
        "left": 100 * (1 - out[3] / rows),
        "expired": 100 * out[2] / rows,
        "evals_left": 100 * (1 - out[8] / evals),
        "invoices": (out[10] - 7 * H) / 60 if out[10] > 0 else 60.0,
        "turns": float(played.turns),
    }
    if base is not None:
        above = {name: max(0.0, found[name] - base[name]) for name in ("wait", "sync", "invoices")}
        found["cost"] = (
            10 * above["wait"] + above["sync"] + found["left"] + 0.5 * found["evals_left"] + above["invoices"]
        )
    return found


def baseline(night: Drawn, cores: int) -> dict[str, float]:
    """The night without elastic work."""
    return measured(night, NOTHING, cores)


def oracle(night: Drawn, cores: int, base: dict[str, float]) -> float:
    """The least cost of the plans that know the night."""
    return min(measured(night, plan, cores, base)["cost"] for plan in plans())
