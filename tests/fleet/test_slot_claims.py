"""A slot is one fire's message's at a time, whoever comes at once; its end is written by the delivery that ran last."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import delete, event, func, update
from sqlalchemy.exc import ProgrammingError

from fleet.storage import database, session, slots
from fleet.storage.slots import Held, OfSlot, Refused
from fleet.storage.tables import LIVE_STATES, Slot, SlotState
from tests.waiting import wait_until

SLOT = datetime(2026, 3, 2, 1, tzinfo=UTC)
FIRST = OfSlot("dramatiq", "nightly", SLOT, "nonce-1", "nightly@1")
SECOND = replace(FIRST, nonce="nonce-2")
LEASE = timedelta(minutes=5)
ENDS = [state for state in SlotState if state not in LIVE_STATES]


@pytest.fixture(autouse=True)
def empty(migrated: object) -> Iterator[None]:
    yield
    with session() as s:
        s.execute(delete(Slot))


def row(of: OfSlot = FIRST) -> Slot:
    with session() as s:
        return s.get_one(Slot, (recorded(of), of.slot))


def recorded(of: OfSlot) -> str:
    return slots.recorded_as(of.namespace, of.entry)


def lapse(of: OfSlot = FIRST) -> None:
    with session() as s:
        past = func.now() - timedelta(seconds=1)
        s.execute(update(Slot).where(Slot.entry == recorded(of), Slot.slot == of.slot).values(lease_until=past))


def claim(of: OfSlot = FIRST) -> Held:
    held = slots.claim(of, lease=LEASE)
    assert isinstance(held, Held), held
    return held


def refusal(of: OfSlot = SECOND) -> Refused:
    refused = slots.claim(of, lease=LEASE)
    assert isinstance(refused, Refused), "it was let through"
    return refused


def test_the_first_message_has_the_slot_and_its_end_is_written() -> None:
    held = claim()
    assert held.how == "first"
    assert row().state == SlotState.RUNNING
    assert slots.end(held, SlotState.DONE)
    found = row()
    assert (found.state, found.nonce, found.message_id) == (SlotState.DONE, "nonce-1", "nightly@1")
    assert (found.fires, found.starts, found.refused) == (1, 1, 0)
    assert found.lease_until is None and found.ended_at is not None and found.ended_at >= found.started_at


def test_the_same_message_passes_whatever_state_its_slot_is_in_and_renews_the_lease() -> None:
    claim()
    lapse()
    for state in (None, *ENDS):
        again = claim()
        assert again.how == "again"
        left = row().lease_until
        assert left is not None and left > row().started_at
        if state is not None:
            slots.end(again, state)
    assert (row().fires, row().starts) == (1, 2 + len(ENDS))


@pytest.mark.parametrize("state", ENDS)
def test_another_fires_message_finds_an_ended_slot_ended(state: SlotState) -> None:
    slots.end(claim(), state)
    before = row()
    refused = refusal()
    assert refused.ended and refused.state == state
    after = row()
    assert (after.state, after.nonce, after.token, after.starts) == (state, "nonce-1", before.token, 1)
    assert after.ended_at == before.ended_at and after.refused == 1


def test_another_fires_message_is_told_how_long_a_live_slot_is_held_and_then_takes_it_over() -> None:
    claim()
    refused = refusal()
    assert refused.left is not None and LEASE - timedelta(seconds=5) < refused.left <= LEASE
    lapse()
    taken = claim(SECOND)
    assert taken.how == "taken_over"
    assert (row().nonce, row().fires, row().starts) == ("nonce-2", 2, 2)
    assert not refusal(FIRST).ended, "the one whose lease lapsed is the stranger now"


def test_a_message_that_comes_again_keeps_its_slot_until_the_lease_of_its_wait_lapses() -> None:
    assert slots.wait(claim(), lease=LEASE)
    assert refusal().state == SlotState.WAITING
    lapse()
    assert claim(SECOND).how == "taken_over"


def test_the_late_end_of_a_delivery_that_was_taken_for_dead_changes_nothing() -> None:
    fenced = claim()
    running = claim()  # delivered again, the same nonce, to another worker
    assert not slots.end(fenced, SlotState.DONE)
    assert not slots.wait(fenced, lease=LEASE)
    assert row().state == SlotState.RUNNING and row().token == running.token
    assert slots.end(running, SlotState.FAILED)
    assert not slots.end(running, SlotState.DONE), "an end is the last word"
    assert row().state == SlotState.FAILED


def test_a_late_message_ends_its_slot_unless_the_slot_is_another_fires() -> None:
    slots.end_unclaimed(FIRST, SlotState.EXPIRED)
    assert (row().state, row().starts, row().fires) == (SlotState.EXPIRED, 0, 1)
    slots.end_unclaimed(SECOND, SlotState.SKIPPED)
    assert (row().state, row().nonce, row().refused) == (SlotState.EXPIRED, "nonce-1", 1)


def test_a_retry_that_came_too_late_ends_its_slot_and_one_that_ran_keeps_its_end() -> None:
    slots.wait(claim(), lease=LEASE)
    slots.end_unclaimed(FIRST, SlotState.EXPIRED)
    assert row().state == SlotState.EXPIRED and row().lease_until is None
    slots.end(claim(), SlotState.DONE)
    slots.end_unclaimed(FIRST, SlotState.EXPIRED)
    assert row().state == SlotState.DONE


def test_two_fleets_that_share_the_table_each_have_a_slot_of_their_own() -> None:
    other = replace(SECOND, namespace="books")
    held, others = claim(), claim(other)
    assert (held.how, others.how) == ("first", "first")
    assert slots.end(others, SlotState.FAILED)
    assert (row().state, row(other).state) == (SlotState.RUNNING, SlotState.FAILED)
    assert slots.wait(held, lease=LEASE)
    slots.end_unclaimed(FIRST, SlotState.EXPIRED)
    assert (row().state, row(other).state) == (SlotState.EXPIRED, SlotState.FAILED)
    assert (row().refused, row(other).refused) == (0, 0)
    assert {recorded(FIRST), recorded(other)} == {"nightly", "books/nightly"}


def test_a_value_that_psycopg_cannot_write_is_no_server_that_is_away() -> None:
    of = replace(FIRST, message_id={})  # type: ignore[arg-type]  # as a message may say
    with pytest.raises(ProgrammingError, match="cannot adapt"):
        slots.claim(of, lease=LEASE)
    with pytest.raises(ProgrammingError, match="cannot adapt"):
        slots.end_unclaimed(of, SlotState.EXPIRED)


def test_many_that_come_at_once_share_no_slot() -> None:
    """Sixteen fires' messages for one slot, at each of forty slots; then all at its lapsed lease."""
    racers, rounds = 16, 40
    had: dict[tuple[int, bool], list[str]] = {(number, late): [] for number in range(rounds) for late in (False, True)}
    of = [replace(FIRST, slot=SLOT + timedelta(minutes=number)) for number in range(rounds)]
    barrier, broke = threading.Barrier(racers), list[BaseException]()

    def race(name: str) -> None:
        try:
            for number, late in had:
                if late and barrier.wait(20) == 0:
                    lapse(of[number])
                barrier.wait(20)
                if isinstance(slots.claim(replace(of[number], nonce=f"{name}-{late}"), lease=LEASE), Held):
                    had[number, late].append(name)
        except BaseException as error:
            broke.append(error)
            barrier.abort()

    threads = [threading.Thread(target=race, args=(str(name),)) for name in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert broke == []
    assert {len(names) for names in had.values()} == {1}
    assert len({names[0] for names in had.values()}) > 1, "there was no race: the same one was always first"
    assert {(row(one).fires, row(one).starts, row(one).refused) for one in of} == {(2, 2, 2 * (racers - 1))}


def test_a_worker_that_stops_in_the_middle_of_its_claim_holds_up_nobody() -> None:
    stopped, go = threading.Event(), threading.Event()

    def stop_here(*_: object) -> None:
        if threading.current_thread().name == "stops":
            stopped.set()
            go.wait(20)

    event.listen(database(), "after_cursor_execute", stop_here)
    stops = threading.Thread(target=claim, name="stops")
    answers: list[object] = []
    other = threading.Thread(target=lambda: answers.append(slots.claim(SECOND, lease=LEASE)))
    try:
        stops.start()
        assert stopped.wait(10)
        other.start()
        wait_until(lambda: answers, 5)
    finally:
        go.set()
        stops.join()
        other.join()
        event.remove(database(), "after_cursor_execute", stop_here)
    assert isinstance(answers[0], Refused)


@pytest.fixture(params=[(), ("hashjoin", "mergejoin", "hashagg", "sort", "material")], ids=["as planned", "row by row"])
def planned(request: pytest.FixtureRequest) -> Iterator[None]:
    """Joins as the server plans them, and as it may where it knows little of a table: its subquery for each row."""

    def configure(connection: Any, _: object) -> None:
        for node in request.param:
            connection.execute(f"SET enable_{node} = off")
        connection.commit()

    database().dispose()
    event.listen(database(), "connect", configure)
    yield
    event.remove(database(), "connect", configure)
    database().dispose()


@pytest.mark.usefixtures("planned")
def test_old_slots_are_forgotten_a_bounded_number_at_a_time_and_held_ones_never() -> None:
    for number in range(5):
        slots.end(claim(replace(FIRST, slot=SLOT + timedelta(minutes=number))), SlotState.DONE)
    held = replace(FIRST, entry="held")
    claim(held)
    with session() as s:
        s.execute(update(Slot).values(claimed_at=func.now() - timedelta(days=15)))
        s.execute(update(Slot).where(Slot.slot == SLOT, Slot.entry == "nightly").values(claimed_at=func.now()))
    assert slots.forget_old(most=3) == 3
    assert slots.forget_old(most=3) == 1
    assert slots.forget_old(most=3) == 0
    assert row().state == SlotState.DONE and row(held).state == SlotState.RUNNING


class Adversary(RuleBasedStateMachine):
    """Fires, deliveries, lapses and ends in any order, against a model of one slot."""

    _numbers = count()

    def __init__(self) -> None:
        super().__init__()
        self.slot = SLOT + timedelta(minutes=next(self._numbers))
        self.owner: str | None = None
        self.live = self.lapsed = False
        self.running: Held | None = None
        self.given: list[Held] = []

    def of(self, nonce: str) -> OfSlot:
        return OfSlot("models", "model", self.slot, nonce, "model@1")

    @rule(nonce=st.sampled_from("ab"))
    def a_message_comes(self, nonce: str) -> None:
        may = self.owner in (None, nonce) or (self.live and self.lapsed)
        answer = slots.claim(self.of(nonce), lease=LEASE)
        assert isinstance(answer, Held) == may
        if isinstance(answer, Held):
            first = self.owner is None
            assert answer.how == ("first" if first else "again" if self.owner == nonce else "taken_over")
            self.owner, self.live, self.lapsed, self.running = nonce, True, False, answer
            self.given.append(answer)
        else:
            assert answer.ended == (not self.live)

    @precondition(lambda self: self.live)
    @rule()
    def the_lease_lapses(self) -> None:
        lapse(self.of(""))
        self.lapsed = True

    @precondition(lambda self: self.given)
    @rule(pick=st.randoms(use_true_random=False), again=st.booleans())
    def a_delivery_ends(self, pick: object, again: bool) -> None:
        held = pick.choice(self.given)  # type: ignore[attr-defined]
        is_its_own = held is self.running
        if again:
            assert slots.wait(held, lease=LEASE) == is_its_own
        else:
            assert slots.end(held, SlotState.DONE) == is_its_own
        if is_its_own:
            self.running, self.live, self.lapsed = None, again, False

    @rule(nonce=st.sampled_from("ab"))
    def a_message_expires(self, nonce: str) -> None:
        slots.end_unclaimed(self.of(nonce), SlotState.EXPIRED)
        if self.owner in (None, nonce) and (self.live or self.owner is None):
            self.owner, self.live, self.running = nonce, False, None

    @invariant()
    def the_row_is_the_models(self) -> None:
        if self.owner is not None:
            found = row(self.of(""))
            assert (found.nonce, found.state in LIVE_STATES) == (self.owner, self.live)
            assert (found.state == SlotState.RUNNING) == (self.running is not None)


def test_no_order_of_fires_deliveries_lapses_and_ends_gives_a_slot_to_two() -> None:
    run_state_machine_as_test(
        Adversary,
        settings=settings(
            max_examples=60, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
