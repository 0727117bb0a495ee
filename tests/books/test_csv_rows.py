"""A CSV is read as its country writes it, whatever its bytes; what cannot be read is named and never guessed."""

from __future__ import annotations

import tracemalloc
from datetime import date
from pathlib import Path

import pytest

from books import csv_rows
from books.csv_rows import BadRow, CsvRow, NotCsv

SECOND_OF_MARCH = date(2026, 3, 2)


def read(path: Path, content: bytes | str, encoding: str = "utf-8") -> list[CsvRow | BadRow]:
    path.write_bytes(content.encode(encoding) if isinstance(content, str) else content)
    return list(csv_rows.rows(path))


def dates(path: Path, heading: str, *cells: str) -> list[date | str]:
    found = read(path, "\n".join([f"{heading};Amount", *(f"{cell};1" for cell in cells)]))
    return [row.booking_date if isinstance(row, CsvRow) else row.message for row in found]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252"])
@pytest.mark.parametrize("delimiter", [";", ",", "\t"])
@pytest.mark.parametrize(("heading", "day", "amount"), [
    (["Buchungstag", "Betrag", "Empfänger", "Währung"], "02.03.2026", "1.234,56"),
    (["Date", "Amount", "Payee", "Currency"], "2026-03-02", "1,234.56"),
])  # fmt: skip
def test_every_encoding_and_delimiter_is_read_in_german_and_in_english(
    tmp_path: Path, encoding: str, delimiter: str, heading: list[str], day: str, amount: str
) -> None:
    text = f"{delimiter.join(heading)}\r\n" + delimiter.join([day, f'"{amount}"', "Bäckerei Groß & Söhne", "eur"])
    (row,) = read(tmp_path / "a.csv", text, encoding)
    assert row == CsvRow(1, SECOND_OF_MARCH, 123456, "EUR", "Bäckerei Groß & Söhne", "")


def test_an_umlaut_of_latin_1_far_down_in_the_file_is_not_garbled(tmp_path: Path) -> None:
    plain = "".join("02.03.2026;1;Kasse\n" for _ in range(5_000))
    *_, last = read(tmp_path / "a.csv", f"Datum;Betrag;Name\n{plain}02.03.2026;1;Müller\n", "latin-1")
    assert isinstance(last, CsvRow)
    assert last.counterparty == "Müller"


def test_a_lone_separator_in_a_file_of_tabs_is_what_the_headings_language_says(tmp_path: Path) -> None:
    german = read(tmp_path / "de.csv", "Datum\tBetrag\n02.03.2026\t1.234\n02.03.2026\t1,234")
    english = read(tmp_path / "en.csv", "Date\tAmount\n2026-03-02\t1.234\n2026-03-02\t1,234")
    assert [type(row) for row in german] == [CsvRow, BadRow]
    assert [type(row) for row in english] == [BadRow, CsvRow]


def test_an_amount_with_its_minus_behind_it_is_negative(tmp_path: Path) -> None:
    (row,) = read(tmp_path / "a.csv", "Datum;Betrag\n02.03.2026;1.234,50-")
    assert isinstance(row, CsvRow)
    assert row.amount_cents == -123450


def test_dates_are_read_as_germans_and_english_write_them(tmp_path: Path) -> None:
    written = ["2026-03-02", "02.03.2026", "2.3.26", "2 Mar 2026", "2 March 2026", "March 2, 2026", "Mar 2, 2026"]
    assert dates(tmp_path / "a.csv", "Date", *written) == [SECOND_OF_MARCH] * len(written)


def test_one_day_above_twelve_tells_which_number_of_every_date_is_the_day(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert dates(path, "Date", "02/03/2026", "13/03/2026") == [SECOND_OF_MARCH, date(2026, 3, 13)]
    assert dates(path, "Date", "03/02/2026", "03/13/26") == [SECOND_OF_MARCH, date(2026, 3, 13)]
    assert dates(path, "Datum", "02/03/2026") == [SECOND_OF_MARCH]


def test_a_date_that_may_be_two_days_is_an_error_and_no_guess(tmp_path: Path) -> None:
    doubtful = "date '02/03/2026' may be 2026-03-02 or 2026-02-03; write it like one of these"
    assert dates(tmp_path / "a.csv", "Date", "02/03/2026", "05/05/2026") == [doubtful, date(2026, 5, 5)]
    assert dates(tmp_path / "a.csv", "Date", "02/03/2026", "13/03/2026", "03/13/2026") == [
        doubtful,
        date(2026, 3, 13),
        date(2026, 3, 13),
    ]


def test_blank_lines_above_the_heading_are_no_rows(tmp_path: Path) -> None:
    (row,) = read(tmp_path / "a.csv", "\n  \nDatum;Betrag\n02.03.2026;1\n")
    assert isinstance(row, CsvRow)
    assert row.number == 1


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "binary content"),
        (b"PK\x03\x04\x14\0\x06\0\x08\0\0\0", "binary content"),
        (b"\xff\xfe", "without a column"),
        (b"\xff\xfe\x01\x02\x03", "without a column"),
        ("Betreff: Rechnung".encode("utf-16"), "the first line is 'Betreff: Rechnung'"),
        (b"Datum;Saldo\n02.03.2026;1", "without a column for amount"),
        (b"Datum;Betrag\n02.03.2026;1\n02.03.2026;" + b'"' + b"x" * 200_000, "after row 1 the file is no CSV any more"),
    ],
)
def test_what_is_no_csv_says_what_was_found(tmp_path: Path, content: bytes, found: str) -> None:
    with pytest.raises(NotCsv, match=found) as refused:
        read(tmp_path / "upload.csv", content)
    assert f"{refused.value}".startswith("upload.csv: ")


CARRIED = 'Datum;Betrag\n02.03.2026;1\n02.03.2026;1;"' + '\n";"' * 700_000
SEPARATORS = "Datum;Betrag\n02.03.2026;1\n" + ";" * 2_000_000


@pytest.mark.parametrize(
    ("content", "line"),
    [(SEPARATORS, 3), (SEPARATORS + "\n02.03.2026;1", 3), (CARRIED, 32_768)],
    ids=["the last line", "a line between", "many lines"],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_row_that_is_too_long_is_refused_before_it_is_read_also_where_quotes_carry_it_over_many_lines(
    tmp_path: Path, content: str, line: int, encoding: str
) -> None:
    (tmp_path / "upload.csv").write_text(content, encoding)
    tracemalloc.start()
    told = rf"upload\.csv: after row 1 .*in line {line} a row has over 131072 characters.*; export it again"
    with pytest.raises(NotCsv, match=told):
        csv_rows.count(tmp_path / "upload.csv")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


def test_rows_of_many_lines_are_as_many_as_they_are(tmp_path: Path) -> None:
    long, blank = '02.03.2026;1;"' + "a line\n" * 1_000 + '"\n', "\n" * 140_000
    rows = read(tmp_path / "a.csv", f"Datum;Betrag;Text\n{long * 60}{blank}02.03.2026;1")
    assert [row.number for row in rows] == list(range(1, 62))
    assert all(isinstance(row, CsvRow) and row.remittance.count("\n") == 999 for row in rows[:-1])


def test_a_file_of_too_many_bytes_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "upload.csv").open("wb") as file:
        file.write(b"Datum;Betrag\n")
        file.truncate(csv_rows.MAX_BYTES + 1)
    with pytest.raises(NotCsv, match=r"upload\.csv: 50000001 bytes, more than 50000000; split the file"):
        csv_rows.count(tmp_path / "upload.csv")


def test_a_file_of_a_heading_alone_has_no_rows(tmp_path: Path) -> None:
    assert read(tmp_path / "a.csv", "Datum;Betrag\n") == []
