"""Reads a query's rows in pages by a unique column, so that a million of them take the memory of one page.

Each page starts behind the last row of the one before (keyset), not at a count of rows (offset): rows that leave the
query's conditions while they are worked on shift nothing, and the last page costs what the first does.

Not guaranteed: one moment for all pages. A row that comes in behind the page that is read is seen, one before it is
not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, SQLColumnExpression, func, select
from sqlalchemy.orm import Session

from fleet.storage.engine import session

T = TypeVar("T")


@dataclass(frozen=True)
class Keyset(Generic[T]):
    """The rows of a statement in order of `by`, a column that is unique and never null.

    The statement selects one thing (an entity or a column), and has neither order, limit nor lock of its own. With
    `locked` a page's rows are locked for as long as its transaction lasts, and those that somebody else has locked are
    passed over.
    """

    statement: Select[T]
    by: SQLColumnExpression[Any]
    rows_a_page: int = 500
    locked: bool = False

    def page(self, s: Session, after: Any = None) -> Sequence[tuple[Any, T]]:
        """The rows behind the key `after`, each with its own key; none when there are no more."""
        keyed = self.statement.add_columns(self.by.label("keyset_key")).order_by(self.by).limit(self.rows_a_page)
        if after is not None:
            keyed = keyed.where(self.by > after)
        if self.locked:
            keyed = keyed.with_for_update(skip_locked=True)
        return [(key, row) for row, key in s.execute(keyed)]

    def pages(self) -> Iterator[Sequence[T]]:
        """All rows; each page is read in a transaction of its own, so that none stays open over what is done with it.

        Raises what the database raises.
        """
        after = None
        while True:
            with session() as s:
                page = self.page(s, after)
            if not page:
                return
            after = page[-1][0]
            yield [row for _, row in page]

    def count(self) -> int:
        """How many rows there are now, counted by the database."""
        with session() as s:
            return s.scalar(select(func.count()).select_from(self.statement.subquery())) or 0


@dataclass(frozen=True)
class Streamed(Generic[T]):
    """A keyset's rows one after the other, for work that opens its own transactions or waits for somebody outside."""

    rows: Keyset[T]

    def __iter__(self) -> Iterator[T]:
        for page in self.rows.pages():
            yield from page

    def __len__(self) -> int:
        return self.rows.count()
