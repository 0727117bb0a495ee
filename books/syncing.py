"""Brings what the bank knows into the books: transactions by account, balances, and the state of consents.

A sync goes through its span oldest page first. Each page is stored in one transaction together with the renewed lease,
so what is committed is whole pages, and a row is stored once however often it is sent: (account, external id) is unique
and a pending row becomes booked in place, never the other way round.

A request (a slot's, or one that a person sent) is answered by any sync that began after it was made, so of many
messages for one slot, or for requests of one moment, one syncs: the UPDATE that takes the account also claims it for
the request (docs/decisions/0007).

Not guaranteed: that the bank shows everything it has. Each sync looks ten days behind the last one for what came late.
On failure: an expired consent ends the account for its owner; a busy bank hands it back and the message is tried again;
a deadline leaves "timed out after 1 of 2 pages", and the next slot starts over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, func, literal_column, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from books import clients
from books.bank import Balance, BankTransaction, ConsentExpired
from books.bank.client import WINDOW
from books.calendar import today
from books.leasing import Hold, lost, take
from books.models import AccountStatus, BankAccount, BankConnection, ConnectionStatus, Transaction
from fleet import progress
from fleet.clock import clock
from fleet.logs import get_logger
from fleet.storage import session
from fleet.storage.keyset import Keyset, Streamed
from fleet.sweep import sweep

log = get_logger(__name__)

FIRST_SPAN = timedelta(days=180)  # two pages; what the institutions give without asking the owner again
OVERLAP = timedelta(days=10)  # banks book up to a week late, and date it back
_DAY = timedelta(days=1)
account_lost = partial(lost, BankAccount, failed=AccountStatus.FAILED)
"""Ends the sync of a message whose job was cut off; the next slot starts over."""
_CLAIMABLE = (AccountStatus.IDLE, AccountStatus.FAILED)
_BALANCES = (
    "closingBooked",
    "interimBooked",
    "openingBooked",
    "expected",
)  # best first; booked rows should add up to it


def accounts_to_sync(asked_at: datetime) -> list[int]:
    """Ids of the accounts whose consent stands, without those of which a sync began since the request was made."""
    with session() as s:
        unanswered = select(BankAccount.id).where(_is_connected(), _unanswered(asked_at))
        return list(s.scalars(unanswered.order_by(BankAccount.id)))


def _unanswered(asked_at: datetime) -> ColumnElement[bool]:
    return or_(BankAccount.covers_until.is_(None), BankAccount.covers_until < asked_at)


def _is_connected() -> ColumnElement[bool]:
    connected = select(BankConnection.id).where(BankConnection.status == ConnectionStatus.CONNECTED)
    return BankAccount.connection_id.in_(connected) & (BankAccount.status != AccountStatus.CONSENT_EXPIRED)


def span(synced_through: date | None, until: date) -> tuple[date, int]:
    """The first day to ask for, and how many pages that makes up to `until`, both included."""
    since = until - FIRST_SPAN + _DAY
    if synced_through is not None:
        since = max(since, min(synced_through, until) - OVERLAP)
    return since, -(-((until - since) + _DAY) // WINDOW)


def sync_transactions(account_id: int, token: str, asked_at: datetime | None = None) -> None:
    """Bring one account up to date; does nothing if another message holds it or its consent expired.

    Nor if a sync of another message began after `asked_at` (now). Raises what the bank client raises, except
    `ConsentExpired`; `LeaseLost`; `DeadlineExceeded`.
    """
    hold = _claim(account_id, token, asked_at or clock.now())
    if hold is None:
        return
    until = today()
    since, pages = span(hold.row.synced_through, until)
    hold.row.pages_done = 0
    with hold.to_the_end(back_to=AccountStatus.IDLE, failed=AccountStatus.FAILED):
        try:
            with clients.limited(f"bank account {hold.row.external_id}"):
                seen, new = _store_pages(hold, since, until, pages)
        except ConsentExpired as error:
            hold.finish(AccountStatus.CONSENT_EXPIRED, f"{error}")
            return
        outcome = f"{seen} transactions, {new} new"
        hold.finish(AccountStatus.IDLE, outcome, synced_through=until, last_synced_at=clock.now())
    log.info("account_synced", account=account_id, pages=pages, transactions=seen, new=new)


def _claim(account_id: int, message: str, asked_at: datetime) -> Hold[BankAccount] | None:
    """The account, and with it every request that was made until now; a message may claim what it claimed before."""
    mine = or_(_unanswered(asked_at), BankAccount.lease_message == message)
    covers = max(clock.now(), asked_at)  # a worker's clock may be behind the one that the slot was judged by
    return take(BankAccount, account_id, message=message, claimable=_CLAIMABLE, only=mine, covers_until=covers)


def _store_pages(hold: Hold[BankAccount], since: date, until: date, pages: int) -> tuple[int, int]:
    seen = new = 0
    progress.publish(0, pages, "pages")
    for page in clients.bank().transactions(hold.row.external_id, since, until):
        with session() as s:
            hold.renew(s)
            new += store(s, hold.row.id, page.transactions, stored_by=hold.message)
            done = hold.row.pages_done + 1
            s.execute(update(BankAccount).where(BankAccount.id == hold.row.id).values(pages_done=done))
        hold.row.pages_done = done
        progress.publish(done, pages, "pages")
        seen += len(page.transactions)
        if page.unidentified:
            log.info("pending_left_out", account=hold.row.id, count=page.unidentified)
    return seen, new


def store(s: Session, account_id: int, transactions: Sequence[BankTransaction], *, stored_by: str) -> int:
    """Write rows of one account that are unlike in their external id; returns how many were new.

    A known row takes the newer state, unless that would turn a booked row back into a pending one.
    """
    if not transactions:
        return 0
    statement = insert(Transaction).values([_values(row, account_id, stored_by) for row in transactions])
    given = statement.excluded
    statement = statement.on_conflict_do_update(
        index_elements=[Transaction.account_id, Transaction.external_id],
        set_={
            "booked": given.booked,
            "booking_date": given.booking_date,
            "value_date": given.value_date,
            "amount_cents": given.amount_cents,
            "currency": given.currency,
        },
        where=or_(given.booked, ~Transaction.booked),
    )
    # xmax is 0 in a row version that an INSERT made, and not in one that an UPDATE made.
    inserted: ColumnElement[bool] = literal_column("(transactions.xmax = 0)")
    return sum(1 for was_new in s.scalars(statement.returning(inserted)) if was_new)


def _values(row: BankTransaction, account_id: int, stored_by: str) -> dict[str, Any]:
    return {
        "account_id": account_id,
        "external_id": row.external_id,
        "booked": row.booked,
        "booking_date": row.booking_date,
        "value_date": row.value_date,
        "amount_cents": row.amount_cents,
        "currency": row.currency,
        "counterparty": row.counterparty,
        "remittance": row.remittance,
        "stored_by": stored_by,
    }


def update_balances() -> None:
    """Ask for the balance of every connected account, one after the other; one that fails keeps its older balance."""
    accounts = Streamed(Keyset(select(BankAccount).where(_is_connected()), by=BankAccount.id))
    sweep("update_accounts", accounts, lambda row: _update_balance(row.id, row.external_id), key=lambda row: row.id)


def _update_balance(account_id: int, external_id: str) -> None:
    try:
        balance = _best(clients.bank().balances(external_id))
    except ConsentExpired as error:
        values = {"status": AccountStatus.CONSENT_EXPIRED, "outcome": f"{error}", "finished_at": func.now()}
        with session() as s:  # a running sync will find out by itself
            s.execute(
                update(BankAccount)
                .where(BankAccount.id == account_id, BankAccount.status.in_(_CLAIMABLE))
                .values(**values)
            )
        return
    if balance is not None:
        with session() as s:
            s.execute(
                update(BankAccount)
                .where(BankAccount.id == account_id)
                .values(balance_cents=balance.amount_cents, balance_at=clock.now())
            )


def _best(balances: Sequence[Balance]) -> Balance | None:
    by_kind = {balance.kind: balance for balance in balances}
    known = (by_kind[kind] for kind in _BALANCES if kind in by_kind)
    return next(known, next(iter(balances), None))


def refresh_connections() -> None:
    """Take over which consents stand: accounts of an ended one wait for their owner, those of a renewed one go on."""
    sweep("sync_all_active_integrations", _states(), lambda state: _refresh(*state), key=lambda state: state[0])


def _states() -> Iterator[tuple[str, ConnectionStatus]]:
    for requisition in clients.bank().requisitions():
        if requisition.status in ("LN", "EX"):  # the others are on their way to one of these
            linked = requisition.status == "LN"
            yield requisition.id, ConnectionStatus.CONNECTED if linked else ConnectionStatus.EXPIRED


def _refresh(requisition_id: str, status: ConnectionStatus) -> None:
    changed = update(BankConnection).where(
        BankConnection.requisition_id == requisition_id, BankConnection.status != status
    )
    with session() as s:
        connection_id = s.scalar(changed.values(status=status).returning(BankConnection.id))
        if connection_id is None:
            return
        if status == ConnectionStatus.EXPIRED:
            values = {"status": AccountStatus.CONSENT_EXPIRED, "outcome": "the owner has to connect the bank again"}
            movable: Sequence[str] = _CLAIMABLE
        else:
            values = {"status": AccountStatus.IDLE, "outcome": "connected again; the next slot syncs it"}
            movable = (AccountStatus.CONSENT_EXPIRED,)
        of_it = BankAccount.connection_id == connection_id
        s.execute(update(BankAccount).where(of_it, BankAccount.status.in_(movable)).values(**values))
    log.info("connection_changed", connection=connection_id, status=str(status))
