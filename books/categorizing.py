"""Sorts transactions into categories: by keyword where one is found, by the model where none is.

A pass goes through all uncategorised rows in pages by id (keyset), sorts each page by keyword in a statement a
category, and asks the model for the first `MODEL_CALLS` of the others itself. Up to `SENT_ON` more go out as a message
each; what is left is the next night's.

Not guaranteed: that a category is right; `categorized_by` says who chose it. A row that has a category is never changed
here. A pass sorts by the categories that there were when it began. On failure of one row the pass goes on; a deadline
leaves, and what is sorted stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, update

from books import categories, clients
from books.categories import Categories
from books.models import Transaction
from fleet import deadline
from fleet.logs import get_logger
from fleet.storage import session
from fleet.storage.keyset import Keyset
from fleet.sweep import sweep

log = get_logger(__name__)

ROWS_A_PAGE = 500
MODEL_CALLS = 40  # at the model's median of 5.5 s that is half the lane's soft budget
_UNSYNCED = {"synchronize_session": False}
SENT_ON = 200  # what two processes ask in the hours before the office opens, beside documents


def _text(row: Transaction) -> str:
    return f"{row.counterparty or ''} {row.remittance}".strip()


def categorize_uncategorized() -> list[int]:
    """Sort what has no category; returns ids of rows to be sorted by a message each."""
    known = categories.current()
    uncategorised = select(Transaction).where(Transaction.category_id.is_(None))
    unmatched: list[int] = []
    sorted_by_rule = 0
    for page in Keyset(uncategorised, by=Transaction.id, rows_a_page=ROWS_A_PAGE).pages():
        deadline.check()
        matched = [(row.id, known.find(_text(row))) for row in page]
        unmatched += [row_id for row_id, category in matched if category is None]
        sorted_by_rule += _set(matched)
    asked, rest = unmatched[:MODEL_CALLS], unmatched[MODEL_CALLS:]
    log.info("categorized_by_rule", processed=sorted_by_rule, left_for_model=len(unmatched))
    sweep("categorize_uncategorized_transactions", asked, lambda row_id: _ask(row_id, known))
    return rest[:SENT_ON]


def _set(matched: Sequence[tuple[int, int | None]]) -> int:
    """One statement a category, not a row: a night brings thousands."""
    by_category: dict[int, list[int]] = {}
    for row_id, category in matched:
        if category is not None:
            by_category.setdefault(category, []).append(row_id)
    with session() as s:
        for category, ids in by_category.items():
            unset = update(Transaction).where(Transaction.id.in_(ids), Transaction.category_id.is_(None))
            s.execute(unset.values(category_id=category, categorized_by="rule"), execution_options=_UNSYNCED)
    return sum(map(len, by_category.values()))


def categorize(transaction_id: int) -> None:
    """Sort one transaction, by keyword or by model; does nothing if it has a category or is gone.

    Raises what the model client raises.
    """
    known = categories.current()
    with session() as s:
        row = s.get(Transaction, transaction_id)
    category = known.find(_text(row)) if row is not None and row.category_id is None else None
    if category is not None:
        _set([(transaction_id, category)])
    else:
        _ask(transaction_id, known)


def _ask(transaction_id: int, known: Categories) -> None:
    with session() as s:
        row = s.get(Transaction, transaction_id)
    if row is None or row.category_id is not None:
        return
    name = clients.model().categorize(
        _text(row), row.amount_cents, row.currency, list(known.ids), run=f"transaction:{row.id}", step="category"
    )
    unset = update(Transaction).where(Transaction.id == transaction_id, Transaction.category_id.is_(None))
    with session() as s:
        s.execute(unset.values(category_id=known.ids[name], categorized_by="model"))
