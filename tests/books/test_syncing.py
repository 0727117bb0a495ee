"""An account's rows come into the books once, page by page, whatever happens on the way."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import func, select, update

from books import syncing
from books.bank import BankUnavailable, RateLimited
from books.leasing import LeaseLost
from books.models import AccountStatus, BankAccount, BankConnection, Transaction
from fleet.clock import clock
from fleet.storage import session
from tests.books.cut import cut


def bank_row(key: str, cents: int = -1250) -> dict[str, Any]:
    return {
        "internalTransactionId": key,
        "bookingDate": "2026-03-01",
        "valueDate": "2026-03-01",
        "transactionAmount": {"amount": f"{cents / 100:.2f}", "currency": "EUR"},
        "creditorName": "Tankhof Nagel",
        "remittanceInformationUnstructured": "Tankstelle Nr. 7",
    }


def page(booked: Sequence[str] = (), pending: Sequence[str] = ()) -> dict[str, Any]:
    return {"booked": [bank_row(key) for key in booked], "pending": [bank_row(key) for key in pending]}


@pytest.fixture
def account(migrated: object) -> int:
    with session() as s:
        connection = BankConnection(requisition_id=str(uuid4()), institution="BANK", customer="c")
        s.add(connection)
        s.flush()
        row = BankAccount(
            connection_id=connection.id,
            external_id=str(uuid4()),
            name="n",
            currency="EUR",
            customer="c",
            status=AccountStatus.IDLE,
        )
        s.add(row)
        s.flush()
        return row.id


def now(account: int) -> BankAccount:
    with session() as s:
        return s.get_one(BankAccount, account)


def stored(account: int) -> dict[str, bool]:
    with session() as s:
        ours = select(Transaction.external_id, Transaction.booked).where(Transaction.account_id == account)
        return {row.external_id: row.booked for row in s.execute(ours)}


def test_a_first_sync_takes_two_pages_and_says_what_it_found(account: int, world: Any) -> None:
    world.shows(page(booked=["a"]), page(booked=["b"], pending=["c"]))
    syncing.sync_transactions(account, token="m1")
    row = now(account)
    assert stored(account) == {"a": True, "b": True, "c": False}
    assert (row.status, row.outcome, row.pages_done) == ("idle", "3 transactions, 3 new", 2)
    assert row.lease_message == "m1"
    assert row.lease_until is None
    assert row.last_synced_at


def test_the_same_rows_a_second_time_make_no_second_row(account: int, world: Any) -> None:
    world.shows(page(booked=["a"]), page(booked=["b"]))
    syncing.sync_transactions(account, token="m1")
    world.shows(page(booked=["a", "b", "c"]))
    syncing.sync_transactions(account, token="m2")
    assert len(stored(account)) == 3
    assert now(account).outcome == "3 transactions, 1 new"


def test_a_pending_row_becomes_booked_and_never_pending_again(account: int, world: Any) -> None:
    for shown, booked in ((page(pending=["a"]), False), (page(booked=["a"]), True), (page(pending=["a"]), True)):
        world.shows(shown)
        syncing.sync_transactions(account, token=str(uuid4()))
        assert stored(account) == {"a": booked}


def test_of_many_messages_for_one_slot_one_syncs(account: int, world: Any) -> None:
    slot = clock.now() - timedelta(minutes=3)
    world.shows(page(booked=["a"]), page())
    assert account in syncing.accounts_to_sync(slot)
    for message in ("m1", "m2", "m3"):
        syncing.sync_transactions(account, token=message, asked_at=slot)
    assert (now(account).lease_message, now(account).attempts, len(world.asked)) == ("m1", 1, 2)
    assert account not in syncing.accounts_to_sync(slot)


def test_a_request_made_before_a_sync_began_is_answered_by_it_and_a_later_one_syncs_again(
    account: int, world: Any
) -> None:
    before = clock.now()
    world.shows()
    syncing.sync_transactions(account, token="m1")
    syncing.sync_transactions(account, token="m2", asked_at=before)
    assert now(account).lease_message == "m1"
    syncing.sync_transactions(account, token="m3", asked_at=clock.now())
    assert now(account).lease_message == "m3"


def test_a_slot_that_a_slow_clock_has_not_reached_yet_is_claimed_all_the_same(account: int, world: Any) -> None:
    slot = clock.now() + timedelta(seconds=2)
    world.shows()
    for message in ("m1", "m2"):
        syncing.sync_transactions(account, token=message, asked_at=slot)
    assert (now(account).lease_message, now(account).covers_until) == ("m1", slot)


def test_a_message_whose_sync_failed_may_sync_again_and_others_for_its_slot_may_not(account: int, world: Any) -> None:
    slot = clock.now() - timedelta(minutes=3)
    world.reply = lambda *_: (503, {"summary": "busy", "detail": "busy"})
    with pytest.raises(BankUnavailable):
        syncing.sync_transactions(account, token="m1", asked_at=slot)
    world.shows(page(booked=["a"]))
    syncing.sync_transactions(account, token="m2", asked_at=slot)
    assert stored(account) == {}
    syncing.sync_transactions(account, token="m1", asked_at=slot)
    assert stored(account) == {"a": True}


def test_an_account_that_another_message_holds_is_left_alone(account: int, world: Any) -> None:
    with session() as s:
        held = {
            "status": "running",
            "lease_token": "other",
            "lease_message": "other",
            "lease_until": func.now() + timedelta(minutes=5),
        }
        s.execute(update(BankAccount).where(BankAccount.id == account).values(**held))
    syncing.sync_transactions(account, token="m1")
    assert world.asked == []
    assert now(account).lease_message == "other"


def test_a_lost_lease_stops_the_sync_before_the_page_is_stored(account: int, world: Any) -> None:
    def answer(*_: object) -> tuple[int, Any]:
        with session() as s:
            s.execute(update(BankAccount).where(BankAccount.id == account).values(lease_token="thief"))
        return 200, {"transactions": page(booked=["a"])}

    world.reply = answer
    with pytest.raises(LeaseLost):
        syncing.sync_transactions(account, token="m1")
    assert stored(account) == {}
    assert now(account).status == "running"


def test_an_expired_consent_ends_for_its_owner_and_is_not_tried_again(account: int, world: Any) -> None:
    world.reply = lambda *_: (
        401,
        {"summary": "End User Agreement (EUA) x has expired", "detail": "EUA was valid for 90 days"},
    )
    syncing.sync_transactions(account, token="m1")
    row = now(account)
    assert row.status == AccountStatus.CONSENT_EXPIRED
    assert "connect the bank again" in (row.outcome or "")
    assert account not in syncing.accounts_to_sync(clock.now())


@pytest.mark.parametrize(("status", "error"), [(429, RateLimited), (503, BankUnavailable)])
def test_a_busy_bank_hands_the_account_back_and_the_message_is_tried_again(
    account: int, world: Any, status: int, error: type[Exception]
) -> None:
    world.reply = lambda *_: (status, {"summary": "busy", "detail": "busy"})
    with pytest.raises(error):
        syncing.sync_transactions(account, token="m1")
    assert now(account).status == "idle"
    assert "will be tried again" in (now(account).outcome or "")
    assert account in syncing.accounts_to_sync(clock.now())


def test_a_later_sync_asks_for_one_page_that_overlaps_the_last() -> None:
    until = date(2026, 3, 2)
    assert syncing.span(None, until) == (date(2025, 9, 4), 2)
    assert syncing.span(date(2026, 3, 1), until) == (date(2026, 2, 19), 1)
    assert syncing.span(date(2025, 3, 1), until) == (date(2025, 9, 4), 2)


def test_balances_are_taken_and_an_ended_consent_is_noted(account: int, world: Any) -> None:
    amount = {"amount": "12.34", "currency": "EUR"}
    world.reply = lambda *_: (200, {"balances": [{"balanceType": "closingBooked", "balanceAmount": amount}]})
    syncing.update_balances()
    assert now(account).balance_cents == 1234


def test_a_requisition_that_expired_and_came_back_moves_its_accounts(account: int, world: Any) -> None:
    with session() as s:
        requisition = s.scalars(
            select(BankConnection.requisition_id).join(BankAccount).where(BankAccount.id == account)
        ).one()
    for status, expected in (("EX", AccountStatus.CONSENT_EXPIRED), ("LN", AccountStatus.IDLE)):
        row = {"id": requisition, "institution_id": "BANK", "status": status, "accounts": []}
        world.reply = lambda *_, row=row: (200, {"results": [row], "next": None})
        syncing.refresh_connections()
        assert now(account).status == expected


def test_a_sync_that_is_cut_says_after_how_many_pages_and_can_be_taken_again(account: int, world: Any) -> None:
    over, pages = threading.Event(), iter([page(booked=["a"])])

    def answer(*_: object) -> tuple[int, Any]:
        found = next(pages, None)
        if found is None:
            over.wait(20)
        return 200, {"transactions": found or page()}

    world.reply = answer
    cut(timedelta(seconds=3), syncing.sync_transactions, syncing.account_lost, account, token="m1")
    over.set()
    assert (now(account).status, now(account).outcome) == ("failed", "timed out after 1 of 2 pages")
    syncing.sync_transactions(account, token="m2")
    assert now(account).status == "idle"
