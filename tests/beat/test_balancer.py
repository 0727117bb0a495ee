"""The balancer's rule: bounded by the cap, never grows while people wait, gives what the deadline needs, and knows when
it is blind."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beat.balancer import BalancerRules, Places, Processors, Reading, State, decide, needs
from fleet.allowance import LEASE
from fleet.window import Window

RULES = BalancerRules()
MIDNIGHT = datetime(2026, 11, 30, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def at(hour: float) -> datetime:
    return MIDNIGHT + timedelta(hours=hour)


AI = Window(at(0.5), at(4), at(6.25), at(6.5), at(8))
EVALS = Window(at(0.5), at(5), at(6.25), at(6.5), at(6.25))
QUIET = Processors(cores=4, others=0.1, reserve=0)


def reading(now: datetime, **values: Any) -> Reading:
    """A quiet minute with a large backlog; nothing in it is frozen."""
    known: dict[str, Any] = {
        "taken": now,
        "window": AI,
        "cap": 4,
        "backlog": 20_000,
        "cost": timedelta(seconds=0.9),
        "wait": timedelta(seconds=0.3),
        "in_flight": True,
        "counters": now,
        "room": QUIET,
    }
    return Reading(now, **{**known, **values})


def after(minutes: int, state: State = State(), **values: Any) -> list[tuple[int, str]]:  # noqa: B008  (it is frozen)
    """What is allowed in so many minutes from 01:00 on, all like each other."""
    found = []
    for minute in range(minutes):
        granted, state = decide(reading(at(1) + minute * MINUTE, **values), state, RULES)
        found.append((granted.places, granted.reason))
    return found


def test_with_room_and_nobody_waiting_it_grows_by_one_a_minute_after_three_calm_ones() -> None:
    found = after(8, backlog=100)
    assert [places for places, _ in found] == [0, 0, 1, 2, 3, 4, 4, 4]
    assert {reason for _, reason in found} == {"calm"}


def test_it_begins_with_what_the_deadline_needs_however_cautious() -> None:
    assert after(1)[0] == (2, "floor")


def test_it_halves_at_once_when_people_wait_and_grows_only_after_calm_minutes() -> None:
    hot = decide(reading(at(1), backlog=100, wait=2 * SECOND), State(places=4, calm=9), RULES)
    assert (hot[0].places, hot[0].reason) == (2, "hot")
    found = after(5, hot[1], backlog=100)
    assert [places for places, _ in found] == [2, 2, 3, 4, 4]


def test_it_gives_up_the_cores_that_other_lanes_take() -> None:
    busy = Processors(cores=4, others=3.5, reserve=0)
    found = after(6, State(places=4), backlog=100, room=busy)
    assert [places for places, _ in found] == [2, 2, 1, 1, 1, 1]
    assert found[0][1] == "free"


def test_it_leaves_at_once_what_other_elastic_entries_were_granted() -> None:
    found = after(6, State(places=4), backlog=100, room=Processors(4, 0, 0, granted=2))
    assert [places for places, _ in found] == [2, 2, 2, 2, 2, 2]
    assert found[0] == (2, "free")


def test_chains_that_mostly_wait_need_no_core_each_and_are_cut_where_they_would_be_in_the_way() -> None:
    waits = {"backlog": 100, "room": Processors(2, 0, 0, granted=1.5, a_chain=0.1)}
    assert [places for places, _ in after(8, **waits)] == [0, 0, 1, 2, 3, 4, 4, 4]
    over = {"backlog": 100, "room": Processors(2, 2, 0, granted=1.5, a_chain=0.1)}
    assert after(4, State(places=4, others=2.0), **over)[0] == (0, "free")


def test_it_leaves_a_reserve_of_cores_where_it_is_told_to() -> None:
    free = dict(after(30, backlog=1, room=Processors(cores=2, others=0, reserve=0)))
    kept = dict(after(30, backlog=1, room=Processors(cores=2, others=0, reserve=0.5)))
    assert (max(free), max(kept)) == (2, 1)


def test_quota_bound_work_takes_what_people_leave_of_the_places_less_the_reserve() -> None:
    quiet = after(20, window=EVALS, cap=6, backlog=1, room=Places(10, 5, 0))
    assert [places for places, _ in quiet[:3]] == [0, 0, 1]
    assert quiet[-1] == (5, "calm"), "the cap is six"
    people = {"window": EVALS, "backlog": 1, "room": Places(10, 5, 4)}
    assert after(1, State(places=5, others=4), **people) == [(1, "free")]
    assert after(30, State(places=5), **people)[-1] == (1, "calm")


def test_a_chain_that_lacks_its_place_for_ten_minutes_is_not_begun_again_and_again() -> None:
    people = {"window": EVALS, "cap": 3, "backlog": 1, "room": Places(10, 5, 3)}
    found = after(30, State(places=3, others=3), **people)
    assert found[7:11] == [(3, "calm"), (3, "calm"), (2, "free"), (2, "calm")]
    assert found[-1] == (2, "calm")


def test_people_who_come_and_go_within_minutes_do_not_turn_the_allowance_round() -> None:
    """What they take at once, the quota gives them: it turns batch work away before it calls."""
    state, found = State(places=4), []
    for minute in range(60):
        room = Places(10, 5, 2 * (minute % 2))
        granted, state = decide(reading(at(1 + minute / 60), window=EVALS, cap=6, backlog=1, room=room), state, RULES)
        found.append(granted.places)
    assert set(found) == {4}


@pytest.mark.parametrize("room", [QUIET, Processors(4, 4, 0), Places(10, 5, 8)])
def test_from_the_slot_on_one_chain_finds_out_what_a_row_costs_whoever_waits(room: Processors | Places) -> None:
    unknown = {"cost": timedelta(0), "wait": 2 * SECOND, "room": room}
    assert decide(reading(at(3.9), backlog=200, **unknown), State(), RULES)[0].places == 0
    granted, _ = decide(reading(at(5.2), backlog=200, **unknown), State(), RULES)
    assert (granted.places, granted.reason) == (1, "floor")
    assert decide(reading(at(5.2), backlog=0, **unknown), State(), RULES)[0].places == 0


def test_a_reading_older_than_three_minutes_makes_it_the_cron() -> None:
    old = {"taken": at(3) - 181 * SECOND, "backlog": 1}
    for now, places in ((at(3), 0), (at(4), 4), (at(6.4), 4), (at(6.5), 0)):
        granted, state = decide(reading(now, **{**old, "taken": now - 181 * SECOND}), State(places=3), RULES)
        assert (granted.places, granted.reason, granted.fallback) == (places, "blind", True)
        assert state.places == places
    assert decide(reading(at(3), taken=at(3) - 180 * SECOND), State(places=3), RULES)[0].reason != "blind"


def test_work_in_flight_in_which_nothing_moves_for_five_minutes_makes_it_the_cron() -> None:
    found = after(8, counters="frozen")
    assert [reason for _, reason in found].index("blind") == 5
    assert found[7] == (0, "blind")
    assert "blind" not in {reason for _, reason in after(8, counters="frozen", in_flight=False)}


def test_it_sees_again_when_something_moves() -> None:
    blind = State(places=4, same=9, counters="frozen")
    granted, state = decide(reading(at(4.5)), blind, RULES)
    assert (granted.reason, granted.places, state.same) == ("calm", 4, 0)


def test_outside_its_window_nothing_runs_and_nothing_is_remembered() -> None:
    for now in (at(0.49), at(8)):
        granted, state = decide(reading(now), State(places=4, calm=7, others=1.0), RULES)
        assert (granted.places, granted.reason) == (0, "closed")
        assert state == State()


def test_by_day_one_chain_goes_on_behind_everybody_and_quota_bound_work_has_ended() -> None:
    granted, _ = decide(reading(at(6.6)), State(places=4), RULES)
    assert (granted.places, granted.reason) == (1, "day")
    assert decide(reading(at(6.3), window=EVALS), State(places=4), RULES)[0].reason == "closed"


def test_a_wait_that_the_machine_makes_is_no_heat_in_a_night_that_is_played_fast() -> None:
    assert RULES.at_rate(1.0) == RULES
    assert RULES.at_rate(240.0).hot == 12 * SECOND


durations = st.floats(0, 100).map(lambda seconds: timedelta(seconds=seconds))
rooms = st.one_of(
    st.builds(Processors, st.floats(0.5, 64), st.floats(0, 64), st.floats(0, 1)),
    st.builds(Places, st.integers(1, 50), st.integers(0, 50), st.integers(0, 80)),
)
nows = st.floats(0, 9).map(at)
readings = st.builds(
    lambda now, old, window, cap, backlog, cost, wait, flying, counters, room: Reading(
        now, now - old, window, cap, backlog, cost, wait, flying, counters, room
    ),
    *(nows, st.floats(0, 400).map(lambda s: timedelta(seconds=s)), st.sampled_from([AI, EVALS]), st.integers(1, 8)),
    *(st.integers(0, 10**6), durations, durations, st.booleans(), st.sampled_from("ab"), rooms),
)
states = st.builds(
    State, st.integers(0, 8), st.integers(0, 9), st.floats(0, 64), st.integers(0, 9), st.sampled_from([None, "a", "b"])
)


def blind(found: Reading, state: State) -> bool:
    same = state.same + 1 if found.in_flight and found.counters == state.counters else 0
    return found.now - found.taken > RULES.stale or same >= RULES.frozen_ticks


@settings(max_examples=500, deadline=None)
@given(readings, states)
def test_an_allowance_is_never_below_none_nor_above_the_cap_and_is_a_lease(found: Reading, state: State) -> None:
    granted, then = decide(found, state, RULES)
    assert 0 <= granted.places <= found.cap
    assert granted.leased_until == found.now + LEASE
    assert then.places == granted.places


@settings(max_examples=500, deadline=None)
@given(readings, states)
def test_a_hold_is_bounded_by_the_deadline(found: Reading, state: State) -> None:
    granted, _ = decide(found, state, RULES)
    if found.window.holds(found.now) and found.now < found.window.day and not blind(found, state):
        assert granted.places >= min(found.cap, needs(found, RULES))


@settings(max_examples=500, deadline=None)
@given(readings, states)
def test_it_never_grows_while_people_wait_but_for_the_deadline(found: Reading, state: State) -> None:
    found = replace(found, wait=RULES.hot + SECOND)
    granted, _ = decide(found, state, RULES)
    if not blind(found, state):
        assert granted.places <= max(state.places // 2, min(found.cap, needs(found, RULES)))


@settings(max_examples=500, deadline=None)
@given(readings, states)
def test_blind_is_the_cron_slots_level(found: Reading, state: State) -> None:
    granted, _ = decide(found, state, RULES)
    if found.window.holds(found.now) and blind(found, state):
        assert granted.reason == "blind"
        assert granted.places == found.window.level(found.cap, found.now)


@settings(max_examples=300, deadline=None)
@given(readings, states)
def test_the_same_reading_and_state_always_give_the_same_allowance(found: Reading, state: State) -> None:
    assert decide(found, state, RULES) == decide(found, state, RULES)


@pytest.mark.parametrize("backlog", [0, 1, 10**9])
def test_behind_the_deadline_what_is_left_is_to_be_done_at_once(backlog: int) -> None:
    granted, _ = decide(reading(at(6.3), backlog=backlog), State(places=1), RULES)
    assert granted.places == (4 if backlog > 1_000 else 1)
