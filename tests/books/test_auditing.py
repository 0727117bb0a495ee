"""What does not fit together becomes a finding, once."""

from __future__ import annotations

from datetime import date, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import func, select, text, update

from books import auditing
from books.models import AccountStatus, BankAccount, BankConnection, Finding, Transaction
from fleet.clock import clock
from fleet.storage import session


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
            balance_cents=10_000,
            balance_at=clock.now(),
            last_synced_at=clock.now(),
        )
        s.add(row)
        s.flush()
        return row.id


def change(account: int, **values: object) -> None:
    with session() as s:
        s.execute(update(BankAccount).where(BankAccount.id == account).values(**values))


def book(account: int, cents: int, *, booked: bool = True) -> None:
    with session() as s:
        s.add(
            Transaction(
                account_id=account,
                external_id=str(uuid4()),
                booked=booked,
                booking_date=date(2026, 3, 1),
                amount_cents=cents,
                currency="EUR",
                remittance="",
                stored_by="m",
            )
        )


def findings(account: int) -> dict[str, str]:
    auditing.nightly_audit()
    auditing.nightly_audit()
    ours = Finding.subject.in_([f"account {account}", f"BankAccount {account}"])
    with session() as s:
        return {found.kind: found.message for found in s.scalars(select(Finding).where(ours))}


def test_an_account_in_order_is_no_finding(account: int) -> None:
    book(account, 500)
    assert findings(account) == {}


def test_an_account_that_was_not_synced_for_a_day_is_a_finding(account: int) -> None:
    change(account, last_synced_at=clock.now() - timedelta(hours=27), outcome="the bank was down")
    assert "the bank was down" in findings(account)["not_synced"]


def test_a_balance_that_the_booked_rows_do_not_add_up_to_is_a_finding(account: int) -> None:
    assert findings(account) == {}
    book(account, 1_000)
    change(account, balance_cents=11_000)
    book(account, 777, booked=False)
    assert findings(account) == {}
    change(account, balance_cents=12_500)
    assert findings(account)["balance_mismatch"] == "balance and booked rows differ by 1500 cents"


def test_a_row_that_says_running_after_its_lease_is_a_finding(account: int) -> None:
    change(account, status="running", lease_until=func.now() - timedelta(seconds=1))
    assert list(findings(account)) == ["stuck"]


def test_an_expired_consent_is_a_finding_of_its_own(account: int) -> None:
    change(account, status=AccountStatus.CONSENT_EXPIRED, last_synced_at=None)
    assert list(findings(account)) == ["consent_expired"]


def test_an_audit_in_which_every_account_is_a_finding_says_so_of_each(account: int) -> None:
    """A statement takes 65,535 parameters, and a finding four."""
    with session() as s:
        s.execute(
            text(
                "INSERT INTO bank_accounts (external_id, name, currency, customer, status) "
                "SELECT 'mass-' || n, 'n', 'EUR', 'c', 'consent_expired' FROM generate_series(1, 17000) n"
            )
        )
    assert auditing.nightly_audit().failed == 0
    with session() as s:
        assert (s.scalar(select(func.count()).where(Finding.kind == "consent_expired")) or 0) >= 17_000
        s.execute(text("DELETE FROM bank_accounts WHERE external_id LIKE 'mass-%'"))
        s.execute(text("DELETE FROM findings"))
