"""The categories and their keywords: a few rows that seldom change, kept for the life of a process.

A change that is committed, in whatever process, has them read again at their next use (`fleet.storage.reference`).

Not guaranteed: that a category which somebody deletes is not chosen in the moment of its deletion; the database then
refuses the row, and its message is tried again. On failure it raises what the database raises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from sqlalchemy import select
from sqlalchemy.orm import Session

from books.models import Category
from fleet.storage.reference import Reference


@dataclass(frozen=True)
class Categories:
    """Ids by name, and keywords in lower case with the id that each stands for; both in order of id."""

    ids: Mapping[str, int]
    keywords: tuple[tuple[str, int], ...]

    @cached_property
    def fingerprint(self) -> int:
        """A number (of 63 bits) that other keywords do not have, whatever they stand for."""
        words = "\0".join(sorted({keyword for keyword, _ in self.keywords}))
        return int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "big") >> 1

    def find(self, text: str) -> int | None:
        """The id of the first category that has a keyword in the text; None if none has."""
        lower = text.lower()
        return next((category for keyword, category in self.keywords if keyword in lower), None)


def read(s: Session) -> Categories:
    """The categories as the session's transaction sees them."""
    rows = s.scalars(select(Category).order_by(Category.id)).all()
    return Categories(
        ids=MappingProxyType({row.name: row.id for row in rows}),
        keywords=tuple((keyword.lower(), row.id) for row in rows for keyword in row.keywords),
    )


_REFERENCE = Reference(Category.__tablename__, read)


def current() -> Categories:
    """The categories; call it outside of a transaction, for it may open one of its own."""
    return _REFERENCE.get()
