"""Reads a CSV of bank movements: `;` or `,` between cells, German or English numbers and headings, UTF-8 or cp1252.

Rows come one at a time; the file is never held whole. A row that cannot be read comes as a `BadRow` with its number and
what was found. The delimiter decides what a lone separator before three digits means: thousands in `1.234` of a `;`
file and in `1,234` of a `,` file; the other way round it would be a third decimal, which is an error.

Not guaranteed: that a file in a third encoding is noticed. On failure: `NotCsv`, with what was found instead.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

from fleet.errors import FleetError

_HEADINGS = {
    "date": ("date", "booking date", "datum", "buchungstag", "buchungsdatum"),
    "amount": ("amount", "betrag", "umsatz", "betrag (eur)"),
    "currency": ("currency", "währung", "waehrung"),
    "counterparty": ("counterparty", "name", "payee", "empfänger", "auftraggeber/empfänger", "begünstigter"),
    "remittance": ("remittance", "description", "reference", "verwendungszweck", "buchungstext", "text"),
}
_NEEDED = ("date", "amount")
_DATES = ("%Y-%m-%d", "%d.%m.%Y", "%d.%m.%y")
_DIGITS = re.compile(r"[+-]?\d{1,15}")
_LONGEST_SHOWN = 40
_HEAD = 65_536


class NotCsv(FleetError):
    """Raised when a file is not the CSV that an import wants; says what was found instead."""


@dataclass(frozen=True, slots=True)
class CsvRow:
    """A movement. `number` counts the rows below the heading, from 1."""

    number: int
    booking_date: date
    amount_cents: int
    currency: str
    counterparty: str | None
    remittance: str


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read, and why."""

    number: int
    message: str


def rows(path: Path) -> Iterator[CsvRow | BadRow]:
    """Every row below the heading, in order; blank lines are no rows."""
    delimiter, encoding, columns = _shape(path)
    with path.open(encoding=encoding, errors="replace", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
        next(reader)
        number = 0
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    number += 1
                    yield _row(number, cells, columns, delimiter)
        except csv.Error as error:
            raise NotCsv(f"{path.name}: after row {number} the file is no CSV any more ({error}).") from error


def count(path: Path) -> int:
    """How many rows there are, bad ones included."""
    return sum(1 for _ in rows(path))


def _shape(path: Path) -> tuple[str, str, dict[str, int]]:
    """Delimiter, encoding, and the position of each known column."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise NotCsv(f"{path.name}: cannot be opened ({error.strerror}); upload it again.") from error
    if not head.strip():
        raise NotCsv(f"{path.name}: found {len(head)} bytes and no text in them, not a CSV; export it again.")
    if b"\0" in head:
        raise NotCsv(f"{path.name}: found binary content that begins with {head[:8]!r}, not a CSV; export it again.")
    encoding = "utf-8-sig" if _is_utf8(head) else "cp1252"
    first = head.decode(encoding, errors="replace").lstrip().splitlines()[0]
    delimiter = ";" if first.count(";") >= first.count(",") else ","
    headings = [cell.strip().lower() for cell in next(csv.reader([first], delimiter=delimiter))]
    columns = {name: headings.index(word) for name, words in _HEADINGS.items() for word in words if word in headings}
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        shown = first[:_LONGEST_SHOWN] + ("…" if len(first) > _LONGEST_SHOWN else "")
        raise NotCsv(
            f"{path.name}: the first line is {shown!r}, without a column for {' and '.join(missing)}; "
            f"name it {' or '.join(repr(word) for word in _HEADINGS[missing[0]][:3])}."
        )
    return delimiter, encoding, columns


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 3 and len(head) == _HEAD  # cut inside a character
    return True


def _row(number: int, cells: list[str], columns: dict[str, int], delimiter: str) -> CsvRow | BadRow:
    def cell(name: str) -> str:
        position = columns.get(name)
        return cells[position].strip() if position is not None and position < len(cells) else ""

    try:
        if any("\0" in text for text in cells):
            raise ValueError("a zero byte, which no text has")
        return CsvRow(
            number=number,
            booking_date=_date(cell("date")),
            amount_cents=_cents(cell("amount"), "," if delimiter == ";" else "."),
            currency=_currency(cell("currency")),
            counterparty=cell("counterparty") or None,
            remittance=cell("remittance"),
        )
    except ValueError as error:
        return BadRow(number, str(error))


def _date(text: str) -> date:
    for form in _DATES:
        try:
            return datetime.strptime(text, form).date()  # noqa: DTZ007  # a day has no time zone
        except ValueError:
            continue
    raise ValueError(f"date {text[:_LONGEST_SHOWN]!r} is no day like 2026-03-02 or 02.03.2026")


def _currency(text: str) -> str:
    if text and not re.fullmatch("[A-Za-z]{3}", text):
        raise ValueError(f"currency {text[:_LONGEST_SHOWN]!r} is no code of three letters")
    return text.upper() or "EUR"


def _cents(text: str, decimal: str) -> int:
    """An amount in hundredths; `decimal` is the separator that this file's country would use."""
    bad = ValueError(f"amount {text[:_LONGEST_SHOWN]!r} is no number")
    plain = re.sub(r"[\s€]|EUR", "", text).replace("\u2212", "-")
    last = max(plain.rfind("."), plain.rfind(","))
    whole, cents = plain, ""
    if last >= 0:
        mark, after = plain[last], plain[last + 1 :]
        grouped = len(after) == 3 and mark != decimal  # 1.234 where the comma is the decimal mark
        if not (grouped or (len(after) in (1, 2) and plain.count(mark) == 1)):
            raise bad
        if not grouped:
            whole, cents = plain[:last], after
    thousands = next((mark for mark in ".," if mark in whole), None)
    if thousands is not None:
        groups = whole.lstrip("+-").split(thousands)
        if not 1 <= len(groups[0]) <= 3 or any(len(group) != 3 for group in groups[1:]):
            raise bad
        whole = whole.replace(thousands, "")
    if not _DIGITS.fullmatch(whole) or (cents and not re.fullmatch(r"\d{1,2}", cents)):
        raise bad
    value = Decimal(f"{whole}.{cents or '0'}").scaleb(2)
    return int(value)
