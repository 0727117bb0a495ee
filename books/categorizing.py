"""Sorts transactions into categories: by keyword where one is found, by the model where none is.

Rows without a category are a backlog that chunks drain. A chunk takes up to its number of rows round-robin by customer,
also those that were born a moment ago; sorts by keyword in a statement a category, in the transaction that locks them;
and asks the model for some of the others, one after the other. What it does not come to (`books.chunks` says when a
chunk ends) it gives back.

A taken row is its message's alone until `sorting_until`, moved on before each question, so two chains never ask for the
same row; a chunk that was killed has its rows back when its message comes again, and others have them when that instant
has passed. A row for which the model found no usable answer is tried again, and after the last time it is parked:
`unsorted_because` says why, and a person sorts it.

Not guaranteed: that a category is right; `categorized_by` says who chose it. A row that has a category is never changed
here. Keywords that are added later do not reach a row that is parked.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from itertools import chain, zip_longest
from typing import Any

from dramatiq import Message
from dramatiq.middleware import Shutdown
from sqlalchemy import Update, func, or_, select, text, update
from sqlalchemy.orm import Session

from books import categories, clients, turns
from books.categories import Categories
from books.chunks import MOST_TRIES, Chunk, passes
from books.models import Transaction
from fleet.elastic import Did
from fleet.logs import get_logger
from fleet.storage import session

log = get_logger(__name__)

NAME = "categorize_uncategorized_transactions"
TAKEN_FOR = timedelta(minutes=5)  # real: longer than a question usually takes; one that takes longer is asked twice
ASKED_MOST = 20  # taken for a question: what a chunk's time holds; the next chain asks for the others meanwhile
_UNSYNCED = {"synchronize_session": False}
_SAID_AT_MOST = 300

_LOST = f"gave up after {MOST_TRIES} tries: its worker was lost in each"

# A condition here is the condition of an index, word for word, or PostgreSQL does not use it.
_WAITS = Transaction.category_id.is_(None) & Transaction.unsorted_because.is_(None)
_HELD = _WAITS & Transaction.sorting_message.is_not(None)
_FREE = _WAITS & or_(Transaction.sorting_until.is_(None), Transaction.sorting_until < func.now())
_FREE_ROW = """
    t.category_id IS NULL AND t.unsorted_because IS NULL AND (t.sorting_until IS NULL OR t.sorting_until < now())
"""
_NEXT = f"""
    SELECT a.customer FROM bank_accounts a WHERE a.customer > %s
    AND EXISTS (SELECT 1 FROM transactions t WHERE t.account_id = a.id AND {_FREE_ROW}) ORDER BY a.customer LIMIT 1
"""
# From customer to customer by index ("loose scan"): costs by customers that are looked at, not by rows that wait.
_WHOSE = text(
    f"""
    WITH RECURSIVE served (customer) AS (
        ({_NEXT % ":last"}) UNION ALL SELECT ({_NEXT % "served.customer"}) FROM served WHERE customer IS NOT NULL
    ) SELECT customer FROM served WHERE customer IS NOT NULL LIMIT :size
    """
)
_SHARES = text(
    f"""
    SELECT served.customer, mine.id FROM unnest(CAST(:customers AS text[])) AS served (customer) CROSS JOIN LATERAL (
        SELECT t.id FROM bank_accounts a JOIN transactions t ON t.account_id = a.id
        WHERE a.customer = served.customer AND {_FREE_ROW} LIMIT :share
    ) mine
    """
)


def categorize_uncategorized(size: int, token: str) -> Did:
    """Sort up to `size` rows that have no category; says whether another chunk has anything to do now, and how many
    rows this one was through with.

    Raises what the database raises.
    """
    known = categories.current()
    sorted_by_rule, unmatched = _take(size, token, known)
    log.info("categorized_by_rule", processed=sorted_by_rule, left_for_model=len(unmatched))
    left = iter(unmatched)
    chunk = Chunk(NAME, len(unmatched) + 1)
    given_back = 0
    try:
        chunk.do(lambda: next(left, None), lambda row_id: _ask(row_id, known, token))
    finally:
        given_back = _give_back(token)
    found = sorted_by_rule + len(unmatched)
    return Did(bool(found) and not chunk.away, found - given_back)


def backlog() -> int:
    """How many rows wait to be sorted; one count over the index."""
    with session() as s:
        return s.scalar(select(func.count()).select_from(Transaction).where(_WAITS)) or 0


def categorizing_lost(message: Message[Any], reason: str) -> None:
    """Give back what a chunk had taken when it was cut off."""
    log.info("rows_given_back", rows=_give_back(message.message_id), reason=reason)


def _text(row: Transaction) -> str:
    return f"{row.counterparty or ''} {row.remittance}".strip()


def _take(size: int, token: str, known: Categories) -> tuple[int, list[int]]:
    """Sort rows by keyword, and take some of the others for a message: how many it sorted, and the ids it took.

    They are rows in turns by customer, behind those that this very message held when its worker died.
    """
    held = update(Transaction).where(_HELD, Transaction.sorting_message == token).returning(Transaction.id)
    with session() as s:
        own = list(s.scalars(held.values(sorting_until=func.now() + TAKEN_FOR), execution_options=_UNSYNCED))
    taken = turns.step(NAME, lambda s, last: _taken(s, last or "", size, token, known))
    sorted_by_rule, unmatched = taken if taken is not None else (0, [])
    return sorted_by_rule, [*own, *unmatched]


def _taken(s: Session, last: str, size: int, token: str, known: Categories) -> tuple[str, tuple[int, list[int]]] | None:
    """What is taken behind a customer, and of whom the last of it is."""
    chosen = _choose(s, last, size)
    if not chosen:
        return None
    free = select(Transaction).where(Transaction.id.in_(chosen), _FREE).with_for_update(skip_locked=True)
    matched = {row.id: known.find(_text(row)) for row in s.scalars(free)}
    sorted_by_rule = _set(s, matched)
    unmatched = [row_id for row_id in chosen if row_id in matched and matched[row_id] is None]
    asked = unmatched[:ASKED_MOST]
    ours = update(Transaction).where(Transaction.id.in_(asked))
    taken = {"sorting_message": token, "sorting_until": func.now() + TAKEN_FOR}
    s.execute(ours.values(**taken), execution_options=_UNSYNCED)
    end = asked[-1] if len(asked) < len(unmatched) else next(reversed(chosen))
    return chosen[end], (sorted_by_rule, asked)


def _choose(s: Session, last: str, size: int) -> dict[int, str]:
    """Rows that are free of the customers behind `last`, around to it: an equal share of each, in turns; whose."""
    whose = list(s.scalars(_WHOSE, {"last": last, "size": size}))
    if len(whose) < size:  # around: from the first one on
        whose += [one for one in s.scalars(_WHOSE, {"last": "", "size": size - len(whose)}) if one not in whose]
    shares: dict[str, list[int]] = {customer: [] for customer in whose}
    for customer, row_id in s.execute(_SHARES, {"customers": whose, "share": -(-size // max(1, len(whose)))}):
        shares[customer].append(row_id)
    turn = zip_longest(*([(row_id, customer) for row_id in rows] for customer, rows in shares.items()))
    return dict(list(filter(None, chain.from_iterable(turn)))[:size])


def _set(s: Session, matched: Mapping[int, int | None]) -> int:
    """One statement a category, not a row: a night brings thousands."""
    by_category: dict[int, list[int]] = {}
    for row_id, category in matched.items():
        if category is not None:
            by_category.setdefault(category, []).append(row_id)
    for category, ids in by_category.items():
        unset = update(Transaction).where(Transaction.id.in_(ids), Transaction.category_id.is_(None))
        s.execute(unset.values(category_id=category, categorized_by="rule"), execution_options=_UNSYNCED)
    return sum(map(len, by_category.values()))


def _ask(row_id: int, known: Categories, token: str) -> None:
    """Ask the model for a row that is still this message's; counts the try before it asks."""
    ours = update(Transaction).where(Transaction.id == row_id, _HELD, Transaction.sorting_message == token)
    tried = {"sorting_tries": Transaction.sorting_tries + 1, "sorting_until": func.now() + TAKEN_FOR}
    with session() as s:
        row = s.scalars(ours.values(**tried).returning(Transaction), execution_options=_UNSYNCED).one_or_none()
        if row is not None and row.sorting_tries > MOST_TRIES:
            s.execute(ours.values(unsorted_because=_LOST), execution_options=_UNSYNCED)
            row = None
    if row is None:
        return
    run = f"transaction:{row.id}"
    try:
        with clients.limited(clients.MODEL):
            name = clients.model().categorize(
                _text(row), row.amount_cents, row.currency, list(known.ids), run=run, step="category"
            )
    except (Exception, Shutdown) as error:
        _say(ours, row.sorting_tries, error)
        raise
    unset = update(Transaction).where(Transaction.id == row_id, Transaction.category_id.is_(None))
    with session() as s:
        s.execute(unset.values(category_id=known.ids[name], categorized_by="model"))


def _say(ours: Update, tries: int, error: BaseException) -> None:
    """What a failure means for its row, which must not be replaced by a second one."""
    values: dict[str, Any] = {}
    if isinstance(error, Shutdown) or (isinstance(error, Exception) and passes(error)):
        values = {"sorting_tries": tries - 1}
    elif tries >= MOST_TRIES:
        said = f"gave up after {tries} tries: {error}"
        values = {"unsorted_because": said[:_SAID_AT_MOST]}
        log.warning("transaction_unsorted", because=said[:_SAID_AT_MOST])
    if not values:
        return
    try:
        with session() as s:
            s.execute(ours.values(**values), execution_options=_UNSYNCED)
    except Exception as second:
        log.error("outcome_not_written", row="Transaction", error=repr(second))


def _give_back(message: str) -> int:
    """Let others take what a message has taken and not sorted."""
    theirs = update(Transaction).where(_HELD, Transaction.sorting_message == message)
    with session() as s:
        freed = theirs.values(sorting_message=None, sorting_until=None).returning(Transaction.id)
        return len(s.scalars(freed, execution_options=_UNSYNCED).all())
