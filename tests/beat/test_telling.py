"""An allowance in one line, as on-call reads it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from beat.balancer import BalancerRules, Places, Processors, State, decide
from beat.telling import numbers, told
from fleet.allowance import Allowance
from fleet.declarations import Entry
from tests.beat.test_balancer import EVALS, at, reading
from tests.fleet.elastic_house import ENTRY

RULES = BalancerRules()
BERLIN = replace(ENTRY, tz="Europe/Berlin")
ROW = timedelta(seconds=1)


def line(before: int, now: float, entry: Entry = ENTRY, calm: int = 9, **values: Any) -> str:
    found = reading(at(now), **values)
    granted, after = decide(found, State(places=before, calm=calm), RULES)
    return told(entry, granted, before, found, RULES, after)


@pytest.mark.parametrize(
    ("before", "now", "values", "said"),
    [
        (
            *(4, 2, {"backlog": 3_600, "cost": ROW, "wait": timedelta(seconds=1.8)}),
            "held at 2 of 4: people waited 1.8 s for their jobs to start; grows again after 3 calm minutes; "
            "3,600 rows are left, finishes 02:30 at this pace, deadline 06:15",
        ),
        (
            *(2, 2, {"backlog": 3_600, "cost": ROW}),
            "grown to 3 of 4: there is room, and nobody waits; 3,600 rows are left, finishes 02:20 at this pace, "
            "deadline 06:15",
        ),
        (
            *(4, 2, {"backlog": 36_000, "cost": 2 * ROW}),
            "at 4 of 4: there is room, and nobody waits; 36,000 rows are left, finishes 07:00 at this pace, after the "
            "deadline 06:15",
        ),
        (
            *(4, 2, {"backlog": 10, "cost": ROW, "room": Processors(4, 4, 0)}),
            "held at 2 of 4: other lanes use 4.0 of 4 cores; 10 rows are left, finishes 02:00 at this pace, deadline "
            "06:15",
        ),
        (
            *(4, 2, {"backlog": 10, "cost": ROW, "room": Processors(4, 1, 0, granted=1.5)}),
            "held at 2 of 4: other lanes use 1.0 of 4 cores, and other elastic entries were given 1.5; 10 rows are "
            "left, finishes 02:00 at this pace, deadline 06:15",
        ),
        (
            *(1, 2, {"backlog": 30_000, "cost": ROW}),
            "grown to 3 of 4: 30,000 rows of 1 s are not done by 06:15 with fewer; 30,000 rows are left, finishes "
            "04:46 at this pace, deadline 06:15",
        ),
        (
            *(5, 2, {"backlog": 1, "cap": 6, "window": EVALS, "room": Places(10, 5, 4)}),
            "held at 3 of 6: people held 2.0 of 10 places lately, and 5 are kept for them; 1 rows are left, finishes "
            "02:00 at this pace, deadline 06:15",
        ),
        (
            *(5, 2, {"backlog": 3_600, "cost": ROW, "cap": 6, "room": Places(10, 5, 1)}),
            "at 5 of 6: people held 0.5 of 10 places lately, and 5 are kept for them; 3,600 rows are left, finishes "
            "02:12 at this pace, deadline 06:15",
        ),
        (1, 2, {"backlog": 0, "wait": ROW * 2}, "held at 0 of 4: people waited 2.0 s for their jobs to start; grows "
         "again after 3 calm minutes; nothing is left"),
        (0, 4.5, {"backlog": 5, "wait": ROW * 2, "cost": 0 * ROW}, "grown to 1 of 4: one chain learns what a row "
         "costs; 5 rows are left, what one costs is not known yet, deadline 06:15"),
        (0, 2, {"backlog": 5, "wait": ROW * 2, "cost": ROW}, "held at 0 of 4: people waited 2.0 s for their "
         "jobs to start; grows again after 3 calm minutes; 5 rows are left, no end in sight at this pace, deadline "
         "06:15"),
        (4, 7, {"backlog": 0}, "held at 1 of 4: the day began at 06:30; nothing is left"),
        (1, 9, {}, "held at 0 of 4: opens at 00:30"),
        (3, 2, {"taken": at(1)}, "held at 0 of 4: the fleet cannot be seen, so the cron slot stands: all from 04:00 to "
         "06:30"),
        (
            *(1, 2, {"backlog": 3_600, "cost": ROW, "calm": 0}),
            "at 1 of 4: there is room, and nobody waits; grows after 2 calm minutes more; 3,600 rows are left, "
            "finishes 03:00 at this pace, deadline 06:15",
        ),
        (
            *(1, 2, {"backlog": 10, "cost": ROW, "room": Processors(3, 0.2, 0.5, granted=1.5)}),
            "at 1 of 4: no core is free for another: of 3 its chains may take 1.0, other lanes used 0.1 lately, other "
            "elastic entries were given 1.5, 0.5 kept free; 10 rows are left, finishes 02:00 at this pace, deadline "
            "06:15",
        ),
        (
            *(1, 2, {"backlog": 50_000, "cost": 10 * ROW, "cap": 1}),
            "at 1 of 1: there is room, and nobody waits; 50,000 rows are left, not done this night: 138.9 hours at "
            "this pace, deadline 06:15",
        ),
        (1, 2, {"backlog": 5, "cost": timedelta(0)}, "grown to 2 of 4: there is room, and nobody waits; 5 rows are "
         "left, what one costs is not known yet, deadline 06:15"),
        (
            *(2, 2, {"backlog": 3_600, "cost": ROW, "ended_early": 1}),
            "grown to 3 of 4: there is room, and nobody waits; its chunks end early: nobody answers, or people have "
            "the places; 3,600 rows are left, deadline 06:15",
        ),
    ],
)  # fmt: skip
def test_it_says_why_and_when_the_backlog_is_done(before: int, now: float, values: dict[str, Any], said: str) -> None:
    assert line(before, now, **values) == said


def test_times_are_those_of_the_entrys_zone() -> None:
    assert line(1, 9, BERLIN) == "held at 0 of 4: opens at 01:30"


def test_a_chain_that_is_begun_to_learn_what_a_row_costs_is_not_told_as_what_the_deadline_needs() -> None:
    found = reading(at(2), backlog=5, cost=timedelta(0), wait=2 * ROW)
    said = told(ENTRY, Allowance(1, "floor", at(2), fallback=False), 0, found, RULES, State(places=1))
    assert said.startswith("grown to 1 of 4: one chain learns what a row costs; 5 rows are left, ")


def test_the_numbers_say_what_it_was_decided_by() -> None:
    found = reading(at(2), backlog=3_600, cost=ROW)
    granted, _ = decide(found, State(places=2, calm=9), RULES)
    assert numbers(granted, 2, found, RULES) == {
        "before": 2,
        "cap": 4,
        "backlog": 3_600,
        "cost": 1.0,
        "needs": 1,
        "wait": 0.3,
        "free": 3.9,
        "ended_early": 0,
        "deadline": "2026-11-30T06:15:00+00:00",
        "finishes": "2026-11-30T02:20:00+00:00",
    }
