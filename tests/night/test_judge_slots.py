"""What the night's judge reads from `slots`: a slot that two fires sent, that did not end, that failed, is red."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete

from books.night import judge_slots
from books.night.judge_slots import LedgerLine
from books.night.plan import EVENING
from fleet.app import settings
from fleet.storage import session, slots
from fleet.storage.slots import Held, OfSlot
from fleet.storage.tables import Slot, SlotState

SLOT = EVENING + timedelta(hours=2)
TWICE, TAKEN, UNENDED = (
    "slots with two messages",
    "fired slots that a worker took up",
    "slots' messages that did not end",
)


@pytest.fixture(autouse=True)
def empty(migrated: object) -> Any:
    yield
    with session() as s:
        s.execute(delete(Slot))


def of(entry: str, nonce: str, namespace: str | None = None) -> OfSlot:
    return OfSlot(namespace or settings().namespace, entry, SLOT, nonce, f"{entry}@1")


def claim(entry: str, nonce: str = "n-1", namespace: str | None = None) -> Any:
    return slots.claim(of(entry, nonce, namespace), lease=timedelta(minutes=1))


def red(fired: tuple[str, ...]) -> set[str]:
    ledger = [LedgerLine(entry, "fired", SLOT, SLOT, 1, "token") for entry in fired]
    return {line.claim for line in judge_slots._messages(ledger) if line.verdict == "red"}


def test_slots_that_each_ran_once_are_fine() -> None:
    for entry in ("a", "b"):
        slots.end(claim(entry), SlotState.DONE)
    assert red(("a", "b")) == set()
    assert red(("a", "b", "c")) == {TAKEN}


def test_a_second_fires_message_is_seen_whether_it_was_discarded_or_expired() -> None:
    slots.end(claim("a"), SlotState.DONE)
    assert not isinstance(claim("a", "n-2"), Held)
    assert red(("a",)) == {TWICE}
    for nonce in ("n-1", "n-2"):
        slots.end_unclaimed(of("b", nonce), SlotState.EXPIRED)
    with session() as s:
        s.execute(delete(Slot).where(Slot.entry == slots.recorded_as(settings().namespace, "a")))
    assert red(("b",)) == {TWICE}


@pytest.mark.parametrize("other", ["dramatiq", "others"])
def test_another_fleets_slots_are_none_of_this_nights(other: str) -> None:
    slots.end(claim("a", namespace=other), SlotState.FAILED)
    assert red(()) == set()
    assert red(("a",)) == {TAKEN}


@pytest.mark.parametrize("waits", [True, False])
def test_a_slot_that_still_runs_or_waits_did_not_end(waits: bool) -> None:
    held = claim("a")
    if waits:
        slots.wait(held, lease=timedelta(minutes=1))
    assert red(("a",)) == {UNENDED}
