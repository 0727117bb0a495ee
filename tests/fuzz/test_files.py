"""Whatever a customer uploads, it is read, or refused by a sentence that names the file; nothing else is raised.

The engine of OCR takes a second a page: a dozen pictures go through it, the others through one that finds a word.
"""

from __future__ import annotations

from functools import cache
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from PIL import ExifTags, Image

from books import csv_rows, documents
from books.csv_rows import BadRow, CsvRow, NotCsv
from books.documents import DocumentText, DocumentUnreadable
from books.sandbox.receipts.pdf import picture_pdf, text_pdf
from books.sandbox.receipts.sheet import Placed, Sheet
from tests.fuzz.changed import changed_bytes

SIZE = (40, 30)
QUICK = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
SLOW = settings(QUICK, max_examples=12)
MOST_PIXELS = 1_300_000  # what `documents` brings a picture down to, and a little for what it rounds

CSVS = [
    "Buchungstag;Betrag;Währung;Auftraggeber/Empfänger;Verwendungszweck\n01.03.2026;-1.234,56;EUR;Bäcker;Brötchen\n",
    'date,amount,currency,payee,description\n2026-03-01,"1,234.56",EUR,Shop,"two\nlines, quoted"\n03/02/2026,12.3,,,\n',
    "date\tamount\n1 Mar 2026\t12,00-\n",
    'date,amount\n2026-03-01,"' + "1" * 140_000,
]


@cache
def _pdfs() -> tuple[bytes, ...]:
    texts = [Placed(20, 40 + 20 * line, 12, f"Bäckerei Größe {line} 12,34 €") for line in range(5)]
    strip = text_pdf(Sheet(9_000_000, 0.01))
    return text_pdf(Sheet(300, 200, texts=texts)), strip, picture_pdf(_picture("RGB", "JPEG"), SIZE, 300, 200)


@cache
def _pictures() -> tuple[bytes, ...]:
    """Of each kind that is decoded, turned or laid on white in a way of its own."""
    turned, tag = Image.Exif(), ExifTags.Base
    turned[tag.Orientation], turned[tag.Make], turned[tag.XResolution] = 6, "Maker", 72.5
    large = BytesIO()
    Image.new("L", (400, 7_000), 200).save(large, "JPEG")  # a long slip, which is scaled before it is read
    return (
        large.getvalue(),
        *(_picture("RGB", "PNG"), _picture("RGB", "JPEG"), _picture("RGB", "JPEG", exif=turned)),
        *(_picture("RGBA", "PNG"), _picture("P", "PNG", transparency=7), _picture("I;16", "PNG", exif=turned)),
    )


def _picture(mode: str, kind: str, **more: object) -> bytes:
    """Every pixel another; small, so that changed bytes often lie in what says how to read it."""
    file = BytesIO()
    depth = {"RGB": 3, "RGBA": 4, "P": 1, "I;16": 2}[mode]
    pixels = bytes(number * 7 % 251 for number in range(SIZE[0] * SIZE[1] * depth))
    picture = Image.frombytes(mode, SIZE, pixels)
    if mode == "P":
        picture.putpalette(bytes(range(256)) * 3)
    picture.save(file, kind, compress_level=0, **more)
    return file.getvalue()


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
@given(content=changed_bytes(_pdfs()))
def test_a_pdf_is_read_or_unreadable(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(documents, "_ocr_engine", lambda: _finds_a_word)
    _read_or_refused(tmp_path_factory, content)


@pytest.mark.filterwarnings("ignore::UserWarning")  # how Pillow says that an EXIF is odd
@QUICK
@given(content=changed_bytes(_pictures()))
def test_a_picture_is_read_or_unreadable(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(documents, "_ocr_engine", lambda: _finds_a_word)
    _read_or_refused(tmp_path_factory, content)


@pytest.mark.filterwarnings("ignore::UserWarning")
@SLOW
@given(content=changed_bytes(_pictures()))
def test_a_picture_is_read_by_the_engine_or_unreadable(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    _read_or_refused(tmp_path_factory, content)


def _finds_a_word(pixels: Any) -> SimpleNamespace:
    """In the place of RapidOCR, and as particular about what it is given."""
    height, width, colours = pixels.shape
    assert (pixels.dtype, colours) == (np.uint8, 3) and pixels.flags.c_contiguous
    assert 0 < height * width <= MOST_PIXELS
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float32)
    return SimpleNamespace(boxes=[corners], txts=(f"{width} wide",))


def _read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "receipt"
    path.write_bytes(content)
    try:
        found = documents.read(path)
    except DocumentUnreadable as refused:
        assert "receipt" in str(refused)
    else:
        assert isinstance(found, DocumentText) and found.text.strip()
