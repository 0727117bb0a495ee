"""Sorts transactions into categories: by keyword where one is found, by the model where none is.

Rows without a category are a backlog that chunks drain. A chunk first tries the keywords on up to its number of rows
that were not tried with these keywords, also on those that were born a moment ago: a statement a category, in the
transaction that locks them. Where none is found the row says so, and the keywords are not tried on it again until they
change. Then it takes some of those for the model, and asks for one after the other. Both go round-robin by customer,
each with a turn of its own, so rows that wait for a model that is away keep no other from being sorted. What a chunk
does not come to (`books.chunks` says when it ends) it gives back.

A taken row is one delivery's of a message alone until `sorting_until`, moved on before each question, so two chains
never ask for the same row; a chunk that was killed has its rows back when its message comes again, and others have them
when that instant has passed. A worker that stood still meanwhile asks for none of them, and what it then writes changes
nothing. A row for which the model found no usable answer is tried again, and after the last time it is parked:
`unsorted_because` says why, and a person sorts it.

Not guaranteed: that a category is right; `categorized_by` says who chose it. A row that has a category is never changed
here. Keywords that are added later do not reach a row that is parked. A worker that stands still before it looked what
its message holds takes that from the next delivery when it goes on: one question may then be asked twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from itertools import chain, zip_longest
from typing import Any

from dramatiq import Message
from dramatiq.middleware import Shutdown
from sqlalchemy import TextClause, Update, func, or_, select, text, update
from sqlalchemy.orm import Session

from books import categories, clients, turns
from books.categories import Categories
from books.chunks import MOST_TRIES, Chunk, passes
from books.models import Transaction
from fleet import wire
from fleet.actor import current_delivery
from fleet.elastic import Did
from fleet.logs import get_logger
from fleet.storage import session
from fleet.storage.leases import count_late

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


def _chosen(*marks: str) -> tuple[TextClause, TextClause]:
    """Whose rows wait that have one of these marks, and how a share of them is found, each account's oldest first.

    A mark is a range of the index, which "unlike" is not. The order is the index's: no other gives it.
    """
    of_mark = f"SELECT t.id FROM transactions t WHERE t.account_id = a.id AND {_FREE_ROW} AND t.unmatched_by"
    rows = " UNION ALL ".join(f"({of_mark} {mark} ORDER BY t.unmatched_by, t.id LIMIT %s)" for mark in marks)
    of_account = f"bank_accounts a CROSS JOIN LATERAL ({rows}) mine"
    first = of_account.replace("%s", "1")
    after = f"SELECT a.customer FROM {first} WHERE a.customer > %s ORDER BY a.customer LIMIT 1"
    # From customer to customer by index ("loose scan"): costs by customers that are looked at, not by rows that wait.
    whose = f"""
        WITH RECURSIVE served (customer) AS (
            ({after % ":last"}) UNION ALL SELECT ({after % "served.customer"}) FROM served WHERE customer IS NOT NULL
        ) SELECT customer FROM served WHERE customer IS NOT NULL LIMIT :size
    """
    shares = f"""
        SELECT served.customer, share.id FROM unnest(CAST(:customers AS text[])) AS served (customer)
        CROSS JOIN LATERAL (
            SELECT mine.id FROM {of_account.replace("%s", ":share")} WHERE a.customer = served.customer LIMIT :share
        ) share
    """
    return text(whose), text(shares)


_UNTRIED = _chosen("IS NULL", "< :keywords", "> :keywords")
_UNMATCHED = _chosen("BETWEEN :keywords AND :keywords")  # of "=" the order would be that of the primary key as well


def categorize_uncategorized(size: int, token: str) -> Did:
    """Sort up to `size` rows that have no category; says whether another chunk has anything to do now, and how many
    rows this one was through with.

    Raises what the database raises.
    """
    known, delivery = categories.current(), current_delivery()
    ours = _held_by(token, delivery)
    sorted_by_rule, unmatched = _take(size, token, delivery, known)
    log.info("categorized_by_rule", processed=sorted_by_rule, left_for_model=len(unmatched))
    left = iter(unmatched)
    chunk = Chunk(NAME, len(unmatched) + 1)
    given_back = 0
    try:
        chunk.do(lambda: next(left, None), lambda row_id: _ask(row_id, known, ours))
    finally:
        given_back = _give_back(ours)
    found = sorted_by_rule + len(unmatched)
    return Did(bool(found) and not chunk.away, found - given_back, chunk.early)


def backlog() -> int:
    """How many rows wait to be sorted; one count over the index."""
    with session() as s:
        return s.scalar(select(func.count()).select_from(Transaction).where(_WAITS)) or 0


def give_back(token: str) -> None:
    """Give back what a message took in an attempt before, or in a delivery that was lost, where it does not go on."""
    if rows := _give_back(_held_by(token, None)):
        log.info("rows_given_back", rows=rows, reason="its chunk may not go on")


def categorizing_lost(message: Message[Any], reason: str) -> None:
    """Give back what a chunk had taken when it was cut off; after a soft deadline only what that delivery took."""
    theirs = _held_by(message.message_id, message.options.get(wire.DELIVERY))
    log.info("rows_given_back", rows=_give_back(theirs), reason=reason)


def _text(row: Transaction) -> str:
    return f"{row.counterparty or ''} {row.remittance}".strip()


def _held_by(message: str, delivery: str | None) -> Update:
    """Of what a message has taken: what this delivery of it has, or, without one, whichever."""
    of = [] if delivery is None else [Transaction.sorting_delivery == delivery]
    return update(Transaction).where(_HELD, Transaction.sorting_message == message, *of)


def _take(size: int, token: str, delivery: str, known: Categories) -> tuple[int, list[int]]:
    """Sort rows by keyword, and take some of the others for a delivery: how many it sorted, and the ids it took.

    They are rows in turns by customer, behind those that this very message held when its worker died.
    """
    taking = {"sorting_message": token, "sorting_delivery": delivery, "sorting_until": func.now() + TAKEN_FOR}
    held = _held_by(token, None).returning(Transaction.id)
    with session() as s:
        own = list(s.scalars(held.values(**taking), execution_options=_UNSYNCED))
    sorted_by_rule = turns.step(f"{NAME} by keyword", lambda s, last: _by_keyword(s, last, size, known)) or 0
    most = min(ASKED_MOST, size - sorted_by_rule)
    taken = turns.step(NAME, lambda s, last: _for_model(s, last, most, known, taking)) or []
    return sorted_by_rule, [*own, *taken]


def _by_keyword(s: Session, last: str | None, size: int, known: Categories) -> tuple[str, int] | None:
    """Try the keywords on rows behind a customer: of whom the last of these is, and how many rows it sorted."""
    chosen = _choose(s, _UNTRIED, last, size, known)
    if not chosen:
        return None if last is None else (last, 0)
    free = select(Transaction).where(Transaction.id.in_(chosen), _FREE).with_for_update(skip_locked=True)
    matched = {row.id: known.find(_text(row)) for row in s.scalars(free)}
    unmatched = update(Transaction).where(Transaction.id.in_([one for one, found in matched.items() if found is None]))
    s.execute(unmatched.values(unmatched_by=known.fingerprint), execution_options=_UNSYNCED)
    return chosen[next(reversed(chosen))], _set(s, matched)


def _for_model(
    s: Session, last: str | None, most: int, known: Categories, taking: Mapping[str, Any]
) -> tuple[str, list[int]] | None:
    """Take rows behind a customer in which no keyword is found: of whom the last of these is, and which."""
    chosen = _choose(s, _UNMATCHED, last, most, known)
    if not chosen:
        return None if last is None else (last, [])
    free = select(Transaction.id).where(Transaction.id.in_(chosen), _FREE).with_for_update(skip_locked=True)
    locked = set(s.scalars(free))
    s.execute(update(Transaction).where(Transaction.id.in_(locked)).values(**taking), execution_options=_UNSYNCED)
    return chosen[next(reversed(chosen))], [row_id for row_id in chosen if row_id in locked]


def _choose(
    s: Session, queries: tuple[TextClause, TextClause], last: str | None, size: int, known: Categories
) -> dict[int, str]:
    """Rows that are free of the customers behind `last`, around to it: an equal share of each, in turns; whose."""
    (whose_query, shares_query), of = queries, {"keywords": known.fingerprint}
    whose = list(s.scalars(whose_query, {**of, "last": last or "", "size": size}))
    if last and len(whose) < size:  # around: from the first one on
        first = s.scalars(whose_query, {**of, "last": "", "size": size - len(whose)})
        whose += [one for one in first if one not in whose]
    shares: dict[str, list[int]] = {customer: [] for customer in whose}
    share = -(-size // max(1, len(whose)))
    for customer, row_id in s.execute(shares_query, {**of, "customers": whose, "share": share}):
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


def _ask(row_id: int, known: Categories, ours: Update) -> None:
    """Ask the model for a row that is still this delivery's; counts the try before it asks."""
    ours = ours.where(Transaction.id == row_id)
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
    _write(ours, category_id=known.ids[name], categorized_by="model")


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
        _write(ours, **values)
    except Exception as second:
        log.error("outcome_not_written", row="Transaction", error=repr(second))


def _write(ours: Update, **values: Any) -> None:
    """Write what came of a question to its row; nothing, and that is counted, if the row is no longer ours."""
    with session() as s:
        written = s.scalars(ours.values(**values).returning(Transaction.id), execution_options=_UNSYNCED).one_or_none()
    if written is None:
        count_late(Transaction.__tablename__)


def _give_back(theirs: Update) -> int:
    """Let others take what was taken and not sorted."""
    freed = theirs.values(sorting_message=None, sorting_delivery=None, sorting_until=None).returning(Transaction.id)
    with session() as s:
        return len(s.scalars(freed, execution_options=_UNSYNCED).all())
