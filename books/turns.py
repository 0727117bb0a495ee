"""Whose turn it is: chunks take a backlog's rows round-robin by customer, so that nobody waits for anybody's bulk.

The customer served last is kept by name; the next one is the first behind it, by name, who has a row that waits, and
behind the last one the first. With an index by (customer, id) over what waits that is one probe, however many rows or
customers there are. A customer with a row that waits is served once in each round, whatever others have waiting.

Not guaranteed: exact turns. Two chains that are served at once take one step each; a process that dies between its step
and its claim costs its customer that one turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from books.models import BacklogTurn
from fleet.storage import session

T = TypeVar("T")


def step(backlog: str, behind: Callable[[Session, str | None], tuple[str, T] | None]) -> T | None:
    """What is served next, None if nothing waits; `behind(s, customer)` is the first that waits behind a customer, or
    the first of all.

    It answers the last customer that it serves, and what. Steps are one after the other: the row of the turn is locked
    until this commits.
    """
    with session() as s:
        known = select(BacklogTurn.customer).where(BacklogTurn.backlog == backlog)
        last = s.scalar(known.with_for_update())
        found = (behind(s, last) if last is not None else None) or behind(s, None)
        if found is None:
            return None
        customer, served = found
        turn = insert(BacklogTurn).values(backlog=backlog, customer=customer)
        s.execute(turn.on_conflict_do_update(index_elements=[BacklogTurn.backlog], set_={"customer": customer}))
        return served
