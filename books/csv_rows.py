"""Reads a CSV of bank movements: `;`, `,` or tab between cells, German or English numbers, dates and headings.

Rows come one at a time; the file is never held whole, and of a row no more than `LONGEST_ROW`. A row that cannot be
read comes as a `BadRow` with its number and what was found. UTF-8 and UTF-16 are told by their bytes; what is neither
is Windows-1252, which Latin-1 is a part of.

The delimiter (with tabs the headings' language) decides what a lone separator before three digits means: thousands in
`1.234` of a `;` file and in `1,234` of a `,` file; the other way round it would be a third decimal, which is an error.
Of `03/02/2026` the whole file decides which is the day: one date with a day above 12 is enough. Where none has, and the
headings are not German, the row is an error: a date is not guessed.

Not guaranteed: that a file in another encoding is noticed. On failure: `NotCsv`, with what was found instead.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TextIO

from fleet.errors import FleetError

MAX_BYTES = 50_000_000  # half a million rows of a hundred; an import reads its file up to four times
LONGEST_ROW = 131_072  # characters, what `csv` allows one cell; a bank's row has a few hundred

_HEADINGS = {
    "date": ("date", "booking date", "datum", "buchungstag", "buchungsdatum"),
    "amount": ("amount", "betrag", "umsatz", "betrag (eur)"),
    "currency": ("currency", "währung", "waehrung"),
    "counterparty": ("counterparty", "name", "payee", "empfänger", "auftraggeber/empfänger", "begünstigter"),
    "remittance": ("remittance", "description", "reference", "verwendungszweck", "buchungstext", "text"),
}
_GERMAN = {"datum", "buchungstag", "buchungsdatum", "betrag", "umsatz", "betrag (eur)"}
_NEEDED = ("date", "amount")
_DELIMITERS = (";", "\t", ",")
_DATES = ("%Y-%m-%d", "%d.%m.%Y", "%d.%m.%y", "%d %b %Y", "%d %B %Y", "%B %d, %Y", "%b %d, %Y")
_SLASHES = re.compile(r"(\d{1,2})/(\d{1,2})/(?:\d{4}|\d{2})")
_DIGITS = re.compile(r"[+-]?\d{1,15}")
_LONGEST_SHOWN = 40
_HEAD = 65_536


class NotCsv(FleetError):
    """Raised when a file is not the CSV that an import wants; says what was found instead.

    `kind` says it without the file's name and without anything that stands in it.
    """

    def __init__(self, message: str, kind: str = "it is not the CSV that an import wants; export it again") -> None:
        super().__init__(message)
        self.kind = kind


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


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a file is written. `decimal` is the mark that its country would use; `day_first` is None where none tells."""

    encoding: str
    delimiter: str
    columns: dict[str, int]
    decimal: str
    day_first: bool | None

    def cell(self, cells: Sequence[str], name: str) -> str:
        position = self.columns.get(name)
        return cells[position].strip() if position is not None and position < len(cells) else ""


class _Lines:
    """A file's lines for `csv.reader`, which would take a row of any length, and one that quotes carry over many lines.

    Whoever takes a row sets `left` again; a line that is longer than what is left is never read to its end.
    """

    def __init__(self, file: TextIO) -> None:
        self._file, self._number, self.left = file, 0, LONGEST_ROW

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._file.readline(self.left + 1)
        if not line:
            raise StopIteration
        self._number += 1
        self.left -= len(line)
        if self.left < 0:
            raise csv.Error(f"in line {self._number} a row has over {LONGEST_ROW} characters; is a quote left open?")
        return line


def rows(path: Path) -> Iterator[CsvRow | BadRow]:
    """Every row below the heading, in order; blank lines are no rows."""
    shape = _shape(path)
    for number, cells in enumerate(_cells(path, shape), start=1):
        yield _row(number, cells, shape)


def _cells(path: Path, shape: _Shape) -> Iterator[list[str]]:
    number = 0
    with path.open(encoding=shape.encoding, errors="replace", newline="") as file:
        lines = _Lines(file)
        try:
            filled = _filled(lines, shape.delimiter)
            next(filled, None)
            for cells in filled:
                number += 1
                yield cells
        except csv.Error as error:
            kind = f"after row {number} the file is no CSV any more"
            raise NotCsv(f"{path.name}: {kind} ({error}); export it again.", kind) from error


def _filled(lines: _Lines, delimiter: str) -> Iterator[list[str]]:
    for cells in csv.reader(lines, delimiter=delimiter):
        lines.left = LONGEST_ROW
        if any(cell.strip() for cell in cells):
            yield cells


def count(path: Path) -> int:
    """How many rows there are, bad ones included."""
    return sum(1 for _ in rows(path))


def _shape(path: Path) -> _Shape:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        kind = f"it cannot be opened ({error.strerror}); upload it again"
        raise NotCsv(f"{path.name}: cannot be opened ({error.strerror}); upload it again.", kind) from error
    if size > MAX_BYTES:
        kind = f"{size} bytes, more than {MAX_BYTES}; split the file and upload its parts"
        raise NotCsv(f"{path.name}: {kind}.", kind)
    if not head.strip():
        kind = f"found {len(head)} bytes and no text in them, not a CSV; export it again"
        raise NotCsv(f"{path.name}: {kind}.", kind)
    encoding = _encoding(path, head)
    text = head.decode(encoding, errors="replace")
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(_DELIMITERS, key=first.count)
    headings = [cell.strip().lower() for cell in next(csv.reader([first], delimiter=delimiter))]
    columns = {name: headings.index(word) for name, words in _HEADINGS.items() for word in words if word in headings}
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        shown = first[:_LONGEST_SHOWN] + ("…" if len(first) > _LONGEST_SHOWN else "")
        named = " or ".join(repr(word) for word in _HEADINGS[missing[0]][:3])
        lacks = f"without a column for {' and '.join(missing)}; name it {named}"
        kind = f"the first line has {len(headings)} cells, {lacks}"
        raise NotCsv(f"{path.name}: the first line is {shown!r}, {lacks}.", kind)
    german = not _GERMAN.isdisjoint(headings)
    comma = delimiter == ";" or (delimiter == "\t" and german)
    shape = _Shape(encoding, delimiter, columns, "," if comma else ".", german or None)
    return replace(shape, day_first=_day_first(path, shape))


def _encoding(path: Path, head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding, odd in (("utf-16-le", 1), ("utf-16-be", 0)):  # a heading's letters all have a zero byte there
        if len(head) > 8 and not any(head[odd:64:2]) and all(head[1 - odd : 64 : 2]):
            return encoding
    if b"\0" in head:
        raise NotCsv(
            f"{path.name}: found binary content that begins with {head[:8]!r}, not a CSV; export it again.",
            "found binary content, not a CSV; export it again",
        )
    return "utf-8-sig" if _is_utf8(path) else "cp1252"


def _is_utf8(path: Path) -> bool:
    """Of the whole file: its first umlaut may stand anywhere."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with path.open("rb") as file:
            while part := file.read(_HEAD):
                decoder.decode(part)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _day_first(path: Path, shape: _Shape) -> bool | None:
    """Whether the file's dates with slashes begin with the day; None if they do not tell, or contradict each other."""
    first_row = next(_cells(path, shape), [])
    if "/" not in shape.cell(first_row, "date"):
        return shape.day_first
    dates = (_SLASHES.fullmatch(shape.cell(cells, "date")) for cells in _cells(path, shape))
    pairs = [(int(date[1]) > 12, int(date[2]) > 12) for date in dates if date is not None]
    day_first, month_first = any(first for first, _ in pairs), any(second for _, second in pairs)
    if day_first and month_first:
        return None
    return not month_first if day_first or month_first else shape.day_first


def _row(number: int, cells: list[str], shape: _Shape) -> CsvRow | BadRow:
    def cell(name: str) -> str:
        return shape.cell(cells, name)

    try:
        if any("\0" in text for text in cells):
            raise ValueError("a zero byte, which no text has")
        return CsvRow(
            number=number,
            booking_date=_date(cell("date"), shape.day_first),
            amount_cents=_cents(cell("amount"), shape.decimal),
            currency=_currency(cell("currency")),
            counterparty=cell("counterparty") or None,
            remittance=cell("remittance"),
        )
    except ValueError as error:
        return BadRow(number, str(error))


def _date(text: str, day_first: bool | None) -> date:
    if _SLASHES.fullmatch(text):
        year = "%Y" if len(text.rpartition("/")[2]) == 4 else "%y"
        by_day, by_month = _parsed(text, f"%d/%m/{year}"), _parsed(text, f"%m/%d/{year}")
        if by_day and by_month and by_day != by_month and day_first is None:
            raise ValueError(f"date {text!r} may be {by_day} or {by_month}; write it like one of these")
        found = (by_month or by_day) if day_first is False else (by_day or by_month)
    else:
        found = next((day for form in _DATES if (day := _parsed(text, form))), None)
    if found is not None:
        return found
    raise ValueError(f"date {text[:_LONGEST_SHOWN]!r} is no day like 2026-03-02 or 02.03.2026")


def _parsed(text: str, form: str) -> date | None:
    try:
        return datetime.strptime(text, form).date()  # noqa: DTZ007  # a day has no time zone
    except ValueError:
        return None


def _currency(text: str) -> str:
    if text and not re.fullmatch("[A-Za-z]{3}", text):
        raise ValueError(f"currency {text[:_LONGEST_SHOWN]!r} is no code of three letters")
    return text.upper() or "EUR"


def _cents(text: str, decimal: str) -> int:
    """An amount in hundredths; `decimal` is the separator that this file's country would use. `12,00-` is negative."""
    bad = ValueError(f"amount {text[:_LONGEST_SHOWN]!r} is no number")
    plain = re.sub(r"[\s€]|EUR", "", text).replace("\u2212", "-")
    if plain.endswith(("-", "+")):
        plain = plain[-1] + plain[:-1]
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
