"""When a lane is ready, and what it says when it is not."""

from __future__ import annotations

import pytest

from fleet.workers.board import ChildPhase
from fleet.workers.readiness import Place, readiness

NOW = 10_000.0


def place(pid: int = 1, phase: ChildPhase = ChildPhase.SERVING, turned: float = 1.0, started: float = 600.0) -> Place:
    """`turned` and `started` are seconds ago; a `turned` below zero is never."""
    return Place(pid, phase, 0.0 if turned < 0 else NOW - turned, NOW - started)


def test_a_lane_whose_children_serve_and_turn_is_ready() -> None:
    assert readiness([place(1), place(2, turned=3.2)], NOW) is None


def test_one_serving_child_is_enough_while_others_start_retire_or_wait() -> None:
    places = [
        place(1),
        place(2, ChildPhase.STARTING, turned=-1, started=60),
        place(3, ChildPhase.RETIRING, turned=500),
        place(4, ChildPhase.DRAINED, turned=500),
        None,
    ]
    assert readiness(places, NOW) is None


def test_a_pump_that_stands_still_makes_the_lane_unready_though_its_sibling_turns() -> None:
    assert readiness([place(1), place(123, turned=14)], NOW) == (
        "pump of pid 123 last turned 14 s ago: Redis away or thread hung"
    )


def test_every_pump_that_stands_still_is_named() -> None:
    said = readiness([place(1, turned=11), place(2, turned=12)], NOW)
    assert said == "pump of pid 1 last turned 11 s ago; pump of pid 2 last turned 12 s ago: Redis away or thread hung"


@pytest.mark.parametrize(("seconds", "ready"), [(9.9, True), (10.0, False)])
def test_ten_seconds_are_the_limit(seconds: float, ready: bool) -> None:
    assert (readiness([place(turned=seconds)], NOW) is None) is ready


def test_without_a_serving_child_it_counts_what_there_is() -> None:
    places = [place(1, ChildPhase.STARTING), place(2, ChildPhase.STARTING), place(3, ChildPhase.RETIRING), None]
    assert readiness(places, NOW) == "no child serves yet: 1 retiring, 2 starting, 1 waiting for a restart"


def test_a_lane_without_places_is_not_ready() -> None:
    assert readiness([], NOW) == "no child serves yet: none"


def test_a_child_that_serves_but_has_not_fetched_once_does_not_count_yet() -> None:
    assert readiness([place(turned=-1, started=2)], NOW) == "no child serves yet: 1 starting"


def test_a_child_whose_pump_never_turned_is_named_after_ten_seconds() -> None:
    assert readiness([place(7, turned=-1, started=12)], NOW) == (
        "pump of pid 7 has not turned once in 12 s: Redis away or thread hung"
    )
