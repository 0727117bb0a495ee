"""Reads the aggregator's answers into frozen records, and refuses what it cannot read without guessing.

Which id a transaction gets (`external_id`), so that pending and booked never make two rows of one account:

1. `internalTransactionId`, where the institution has it: unique in its account, the same from pending to booked.
2. A *booked* row without it: a digest of `transactionId` and booking date (some banks use an id again months later).
3. A booked row with neither: a digest of its content and its ordinal among equal rows of that day. Windows hold whole
   days, so the ordinal does not depend on how a span is cut.
4. A *pending* row without `internalTransactionId` is left out and counted (`TransactionPage.unidentified`): nothing
   would tie it to its booked form. It arrives when it is booked.

Where one page lists a row both as pending and as booked, the booked one stands.

Not guaranteed: that a row which one window shows as booked is not pending in a later window; whoever stores rows must
not take one back from booked to pending. An institution that starts to send `internalTransactionId` only later
changes the ids of what it sent before.

On failure: `BankAnswerInvalid`, with the account, the transaction and what was found; nothing of that page is returned.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date
from hashlib import sha256

from books.bank.reader import Reader, Row, kind

_REMITTANCE = (
    "remittanceInformationUnstructured",
    "remittanceInformationStructured",
    "additionalInformation",
)


@dataclass(frozen=True, slots=True)
class Requisition:
    """One end user's connection to one institution, and the accounts it reaches. `LN` is linked, `EX` expired."""

    id: str
    institution_id: str
    status: str
    accounts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Account:
    """What the aggregator knows of an account without asking the bank. `READY`, `EXPIRED`, `SUSPENDED`, …"""

    id: str
    iban: str | None
    institution_id: str
    status: str
    owner_name: str | None


@dataclass(frozen=True, slots=True)
class Balance:
    """One of an account's balances; `kind` is `closingBooked`, `interimAvailable`, … as the bank names it."""

    kind: str
    amount_cents: int
    currency: str
    reference_date: date | None


@dataclass(frozen=True, slots=True)
class BankTransaction:
    """One row of an account; money in is positive. `booking_date` is the best known date while it is pending."""

    external_id: str
    booked: bool
    booking_date: date
    value_date: date | None
    amount_cents: int
    currency: str
    counterparty: str | None
    remittance: str


@dataclass(frozen=True, slots=True)
class TransactionPage:
    """What one request for the days `since` to `until`, both included, brought."""

    since: date
    until: date
    transactions: tuple[BankTransaction, ...]
    unidentified: int


def requisition(row: Row) -> Requisition:
    read = Reader("requisitions").within(f"requisition {row.get('id')}")
    accounts = row.get("accounts")
    if not isinstance(accounts, list) or not all(isinstance(account, str) for account in accounts):
        raise read.fault("accounts", kind(accounts), "a list of account ids")
    return Requisition(
        read.text(row, "id"),
        read.text(row, "institution_id"),
        read.text(row, "status"),
        tuple(accounts),
    )


def account(answer: Row, subject: str) -> Account:
    read = Reader(subject)
    return Account(
        id=read.text(answer, "id"),
        iban=read.optional(answer, "iban"),
        institution_id=read.text(answer, "institution_id"),
        status=read.text(answer, "status"),
        owner_name=read.optional(answer, "owner_name"),
    )


def balances(answer: Row, subject: str) -> tuple[Balance, ...]:
    read = Reader(subject)
    return tuple(
        Balance(
            read.text(row, "balanceType"),
            *read.money(row, "balanceAmount"),
            read.day(row, "referenceDate"),
        )
        for row in read.rows(answer, "balances")
    )


def page(answer: Row, subject: str, since: date, until: date) -> TransactionPage:
    """Reads one window's rows; see the module for which id each gets."""
    read = Reader(subject)
    lists = read.inner(answer, "transactions")
    booked, equal_rows = read.rows(lists, "booked"), Counter[str]()
    found: dict[str, BankTransaction] = {}
    for row in booked:
        transaction = _transaction(read, row, equal_rows, fallback=None)
        if found.setdefault(transaction.external_id, transaction) != transaction:
            raise read.fault(f"transaction {transaction.external_id}", "two different rows", "one row of the account")
    pending = read.rows(lists, "pending") if lists.get("pending") is not None else []
    identified = [row for row in pending if read.optional(row, "internalTransactionId")]
    for row in identified:
        transaction = _transaction(read, row, None, fallback=until)
        found.setdefault(transaction.external_id, transaction)
    return TransactionPage(since, until, tuple(found.values()), unidentified=len(pending) - len(identified))


def _transaction(read: Reader, row: Row, equal_rows: Counter[str] | None, fallback: date | None) -> BankTransaction:
    """One row; pending where `equal_rows` is None. `fallback` dates a pending row that carries no date at all."""
    read = read.within(f"transaction {row.get('internalTransactionId') or row.get('transactionId') or 'without an id'}")
    booking_date = read.day(row, "bookingDate", "bookingDateTime", "valueDate", "valueDateTime") or fallback
    if booking_date is None:
        raise read.fault("bookingDate", "no date at all", "an ISO date")
    amount_cents, currency = read.money(row, "transactionAmount")
    external_id = read.optional(row, "internalTransactionId")
    if external_id is None and equal_rows is not None:
        external_id = _digest(read, row, booking_date, equal_rows)
    assert external_id is not None  # pending rows without an id were left out by the caller
    other, same = ("creditorName", "debtorName") if amount_cents < 0 else ("debtorName", "creditorName")
    return BankTransaction(
        external_id=external_id,
        booked=equal_rows is not None,
        booking_date=booking_date,
        value_date=read.day(row, "valueDate", "valueDateTime"),
        amount_cents=amount_cents,
        currency=currency,
        counterparty=read.optional(row, other) or read.optional(row, same),
        remittance=_remittance(read, row),
    )


def _digest(read: Reader, row: Row, booking_date: date, equal_rows: Counter[str]) -> str:
    """An id for a booked row of an institution that has no `internalTransactionId`; see the module, 2 and 3."""
    bank_id = read.optional(row, "transactionId")
    if bank_id is not None:
        return "bank:" + sha256(f"{bank_id}|{booking_date}".encode()).hexdigest()[:40]
    amount_cents, currency = read.money(row, "transactionAmount")
    parties = [read.optional(row, name) for name in ("creditorName", "debtorName")]
    content = repr((booking_date.isoformat(), amount_cents, currency, parties, _remittance(read, row)))
    equal_rows[content] += 1
    return "content:" + sha256(f"{content}|{equal_rows[content]}".encode()).hexdigest()[:40]


def _remittance(read: Reader, row: Row) -> str:
    for name in _REMITTANCE:
        lines = row.get(f"{name}Array")
        if isinstance(lines, list) and lines:
            return " ".join(str(line).strip() for line in lines)
        if text := read.optional(row, name):
            return text
    return ""
