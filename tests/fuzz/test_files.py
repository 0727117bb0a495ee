"""Whatever a customer uploads, it is read, or refused by a sentence that names the file; nothing else is raised."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from books import csv_rows, documents
from books.csv_rows import BadRow, CsvRow, NotCsv
from books.documents import DocumentText, DocumentUnreadable
from books.sandbox.receipts.pdf import text_pdf
from books.sandbox.receipts.sheet import Placed, Sheet
from tests.fuzz.changed import changed_bytes

QUICK = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))

CSVS = [
    "Buchungstag;Betrag;Währung;Auftraggeber/Empfänger;Verwendungszweck\n01.03.2026;-1.234,56;EUR;Bäcker;Brötchen\n",
    'date,amount,currency,payee,description\n2026-03-01,"1,234.56",EUR,Shop,"two\nlines, quoted"\n03/02/2026,12.3,,,\n',
    "date\tamount\n1 Mar 2026\t12,00-\n",
    'date,amount\n2026-03-01,"' + "1" * 140_000,
]


@cache
def _pdf() -> bytes:
    texts = [Placed(20, 40 + 20 * line, 12, f"Bäckerei Größe {line} 12,34 €") for line in range(5)]
    return text_pdf(Sheet(300, 200, texts=texts))


@cache
def _pictures() -> tuple[bytes, ...]:
    from PIL import Image

    made = []
    for kind in ("PNG", "JPEG"):
        file = BytesIO()
        Image.new("RGB", (40, 30), "white").save(file, kind)
        made.append(file.getvalue())
    return tuple(made)


@QUICK
@given(
    content=changed_bytes([text.encode(code) for text in CSVS for code in ("utf-8", "utf-16", "cp1252", "utf-8-sig")])
)
def test_a_csv_is_rows_and_bad_rows_or_no_csv(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "upload.csv"
    path.write_bytes(content)
    try:
        found = list(csv_rows.rows(path))
    except NotCsv as refused:
        assert "upload.csv" in str(refused)
        return
    assert [row.number for row in found] == list(range(1, len(found) + 1))
    for row in found:
        assert isinstance(row, CsvRow | BadRow)
        if isinstance(row, CsvRow):
            assert isinstance(row.amount_cents, int) and abs(row.amount_cents) < 10**17 and len(row.currency) == 3


@QUICK
@given(content=changed_bytes([_pdf()]))
def test_a_pdf_is_read_or_unreadable(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    _read_or_refused(tmp_path_factory, monkeypatch, content)


@QUICK
@given(content=changed_bytes(_pictures()))
def test_a_picture_is_read_or_unreadable(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    _read_or_refused(tmp_path_factory, monkeypatch, content)


def _read_or_refused(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(documents, "_recognise", lambda picture: f"{picture.width} wide")  # OCR takes a second each
    path: Path = tmp_path_factory.getbasetemp() / "receipt"
    path.write_bytes(content)
    try:
        found = documents.read(path)
    except DocumentUnreadable as refused:
        assert "receipt" in str(refused)
    else:
        assert isinstance(found, DocumentText) and found.text.strip()
