"""Takes typed values out of a JSON answer; amounts by `Decimal` into integer hundredths of the currency's unit.

On failure: `BankAnswerInvalid` with the subject (account, transaction), the field, what was found and what should have
been there. A text that may hold an amount or a name is shown by its shape (`-99.999`), never itself. A third decimal
is an error, never rounded.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from books.bank.refusals import BankAnswerInvalid

Row = dict[str, Any]
_AMOUNT = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,2})?")
_CURRENCY = re.compile(r"[A-Z]{3}")


def kind(value: object) -> str:
    """A value by its JSON type alone."""
    if isinstance(value, str):
        return "a blank text" if not value.strip() else "a text"
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


def _shape(value: object) -> str:
    """A text with its digits and letters masked; any other value by its type."""
    return repr(re.sub(r"[^\W\d]", "x", re.sub(r"\d", "9", value[:40]))) if isinstance(value, str) else kind(value)


class Reader:
    """Takes values out of one subject's answer; every fault names the subject and what was found."""

    def __init__(self, subject: str) -> None:
        self.subject = subject

    def fault(self, name: str, found: str, wanted: str) -> BankAnswerInvalid:
        said = f"{self.subject}: {name} should be {wanted}, found {found}; ask the aggregator's support"
        return BankAnswerInvalid(said)

    def within(self, part: str) -> Reader:
        return Reader(f"{self.subject}, {part}")

    def text(self, row: Row, name: str) -> str:
        value = row.get(name)
        if not isinstance(value, str) or not value.strip():
            raise self.fault(name, kind(value), "a text")
        return value.strip()

    def optional(self, row: Row, name: str) -> str | None:
        """Blank counts as absent: some banks send `" "` as a transaction's id."""
        value = row.get(name)
        absent = value is None or (isinstance(value, str) and not value.strip())
        return None if absent else self.text(row, name)

    def rows(self, answer: Row, name: str) -> list[Row]:
        value = answer.get(name)
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            raise self.fault(name, kind(value), "a list of objects")
        return value

    def inner(self, row: Row, name: str) -> Row:
        value = row.get(name)
        if not isinstance(value, dict):
            raise self.fault(name, kind(value), "an object")
        return value

    def lifetime(self, answer: Row, name: str) -> timedelta:
        value = answer.get(name)
        if not isinstance(value, int) or not 0 < value < 10**9:
            raise self.fault(name, kind(value), "a number of seconds")
        return timedelta(seconds=value)

    def day(self, row: Row, *names: str) -> date | None:
        """The first of the named dates that is there; of an instant, its day as the bank wrote it."""
        for name in names:
            value = self.optional(row, name)
            if value is not None:
                try:
                    return date.fromisoformat(value[:10])
                except ValueError:
                    raise self.fault(name, repr(value[:40]), "an ISO date") from None
        return None

    def money(self, row: Row, name: str) -> tuple[int, str]:
        """Integer cents and currency."""
        inner = self.inner(row, name)
        amount, currency = inner.get("amount"), inner.get("currency")
        if not isinstance(amount, str) or not _AMOUNT.fullmatch(amount):
            raise self.fault(f"{name}.amount", _shape(amount), "a decimal text with at most 2 decimals")
        if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
            raise self.fault(f"{name}.currency", _shape(currency), "an ISO 4217 code")
        return int(Decimal(amount).scaleb(2)), currency
