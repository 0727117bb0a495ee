"""The balancer's own rule in simulated nights of ten kinds, beside plans that know the night."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from config import thresholds
from tests.nightsim.night import KINDS, make
from tests.nightsim.played import ALL, NOT_NICED, RULES, Guards, baseline, measured, play
from tests.nightsim.policies import DECIDED
from tests.nightsim.regrets import Night, nights, without_a_guard

MEDIAN, WORST, TURNS = 1.0, 3.0, 16


def judged(found: list[Night]) -> None:
    """The bounds of the promise."""
    regrets = np.array([night.regret() for night in found])
    worst = max(found, key=Night.regret)
    assert np.median(regrets) <= MEDIAN
    assert regrets.max() <= WORST, f"{worst.kind}, seed {worst.seed}: {worst.figures}"
    assert max(night.figures["balancer"]["turns"] for night in found) <= TURNS


@pytest.mark.parametrize("cores", [2, 4])
def test_the_rule_is_never_far_from_the_best_plan_and_does_not_swing(cores: int) -> None:
    judged(nights(cores, range(1), compared=True))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cores", [2, 4])
def test_four_hundred_nights(cores: int) -> None:
    judged(nights(cores, range(40), compared=True))


def test_a_night_played_twice_is_the_same_night() -> None:
    first, second = (play(make("night_burst", 7), DECIDED, 2) for _ in range(2))
    assert np.array_equal(first.out, second.out)
    assert np.array_equal(first.waits, second.waits)


def test_without_elastic_work_a_sync_takes_what_its_calls_take() -> None:
    drawn = make("normal", 3)
    fluid = drawn.page_lat[: drawn.pages.sum()].sum() / drawn.k_agg / 60
    drawn.epi = (0.0, 0.0, 1.0)
    assert baseline(drawn, 8)["sync"] == pytest.approx(fluid, rel=0.05)


@pytest.mark.parametrize(
    ("guard", "like", "kind", "seed", "worth"),
    [
        ("hot", NOT_NICED, "night_burst", 31, 1.0),
        ("calm", NOT_NICED, "early", 3, 5.0),
        ("floor", NOT_NICED, "backlog2x", 0, 20.0),
        ("places kept for people", ALL, "night_burst", 21, 5.0),
        ("reserve", NOT_NICED, "early", 17, 5.0),
    ],
)
def test_a_night_without_one_of_the_guards_is_worse(
    guard: str, like: Guards, kind: str, seed: int, worth: float
) -> None:
    drawn = make(kind, seed)
    base = baseline(drawn, 2)
    without = without_a_guard(like)[guard]
    cost = measured(drawn, like.policy, 2, base, like)["cost"]
    assert measured(drawn, without.policy, 2, base, without)["cost"] > cost + worth


def test_lanes_that_are_not_niced_make_a_night_worse_whatever_is_decided() -> None:
    drawn = make("early", 3)
    base = baseline(drawn, 2)
    cost = measured(drawn, DECIDED, 2, base)["cost"]
    assert measured(drawn, NOT_NICED.policy, 2, base, NOT_NICED)["cost"] > cost + 1.0


def test_a_probe_that_stands_still_in_a_hot_minute_and_lies_does_not_hold_the_night() -> None:
    drawn = make("night_burst", 31)
    base = baseline(drawn, 2)
    saved = []
    for minute, found in enumerate(play(drawn, DECIDED, 2).allowed[:240]):
        if found.reason == "hot":
            drawn.probe_fail, drawn.probe_lies = 60.0 * minute + 30, True
            without = measured(drawn, DECIDED, 2, base, without_a_guard(ALL)["blind"])["cost"]
            saved.append(without - measured(drawn, DECIDED, 2, base)["cost"])
    assert max(saved) > 10.0 and min(saved) > -1.0, saved  # it saves a night, and costs none


def test_the_rule_is_tried_with_the_parameters_that_the_application_has() -> None:
    assert replace(thresholds.BALANCER, cores=None) == RULES
    assert len(KINDS) == 10
