"""What the agent may look up in the books: small questions, tens of milliseconds each, all of one customer.

A tool reads and never writes. On failure: `NotDeclared` for a tool that does not exist, with those that do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from books.models import BankAccount, Invoice, Transaction
from fleet.errors import NotDeclared

_ROWS_SHOWN = 10

Tool = Callable[[Session, str], dict[str, Any]]


def account_balances(s: Session, customer: str) -> dict[str, Any]:
    """How many accounts the customer has and what stands on them, by currency."""
    sums = (
        select(BankAccount.currency, func.count(), func.sum(BankAccount.balance_cents))
        .where(BankAccount.customer == customer)
        .group_by(BankAccount.currency)
        .order_by(BankAccount.currency)
    )
    return {
        currency: {"accounts": accounts, "balance_cents": None if cents is None else int(cents)}
        for currency, accounts, cents in s.execute(sums)
    }


def uncategorized_transactions(s: Session, customer: str) -> dict[str, Any]:
    """How many of the customer's rows have no category, and the latest of them."""
    theirs = select(BankAccount.id).where(BankAccount.customer == customer)
    open_rows = Transaction.account_id.in_(theirs) & Transaction.category_id.is_(None)
    latest = select(Transaction.id, Transaction.booking_date, Transaction.amount_cents, Transaction.currency)
    return {
        "count": s.scalar(select(func.count()).select_from(Transaction).where(open_rows)),
        "latest": [
            {"id": row_id, "booking_date": day.isoformat(), "amount_cents": cents, "currency": currency}
            for row_id, day, cents, currency in s.execute(
                latest.where(open_rows).order_by(Transaction.booking_date.desc(), Transaction.id).limit(_ROWS_SHOWN)
            )
        ],
    }


def invoice_totals(s: Session, customer: str) -> dict[str, Any]:
    """How many invoices the customer has in each status, and what they add up to in cents."""
    sums = (
        select(Invoice.status, func.count(), func.sum(Invoice.amount_cents))
        .where(Invoice.customer == customer)
        .group_by(Invoice.status)
        .order_by(Invoice.status)
    )
    return {status: {"invoices": count, "amount_cents": int(cents)} for status, count, cents in s.execute(sums)}


TOOLS: Mapping[str, Tool] = MappingProxyType(
    {tool.__name__: tool for tool in (account_balances, uncategorized_transactions, invoice_totals)}
)


def call(s: Session, name: str, customer: str) -> dict[str, Any]:
    """Ask one tool about a customer.

    Raises `NotDeclared` for a tool that does not exist.
    """
    if name not in TOOLS:
        raise NotDeclared("tool", name, TOOLS)
    return TOOLS[name](s, customer)
