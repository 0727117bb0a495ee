"""Reads a document's text: the text layer of a PDF where there is one, else optical character recognition (OCR).

Works alone on the machine: the recognition models lie in the `rapidocr` wheel. PDFium is not thread safe and one
engine is kept a process, so within a process documents pass one after the other; ONNX runs on one thread, since a
lane's processes share the cores. Reading order is restored: what stands at the same height is one line, left to right, its
parts joined by two spaces, so that a word and its amount stay together.

Not guaranteed: that OCR reads right, nor anything of a PDF beyond `MAX_PAGES` scanned pages (`pages` says how many
were read). Pages turned by 90 or 180 degrees come out as noise. A document that cannot be read raises
`DocumentUnreadable` before any of its pixels are decoded where its head tells; the soft budget is asked between pages.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fleet import deadline
from fleet.errors import FleetError

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

MAX_PAGES = 5  # scanned pages read of one PDF
MAX_TEXT_PAGES = 50
MAX_BYTES = 50_000_000
MAX_PIXELS = 40_000_000  # an A4 page at 600 dpi has 35 million
_LONGEST_SIDE = 1600  # pixels; more costs time and reads no better
_RENDERED = 1400  # pixels on the longer side of a rendered page
_TEXT_LAYER = 20  # letters and digits from which on a page's text layer is believed to be one
_HEADS = {b"%PDF-": "PDF", b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG"}

_pdfium = threading.Lock()
_engine = threading.Lock()


class DocumentUnreadable(FleetError):
    """Raised when a document cannot be read; the message names the file, what was found in it and what to do."""


@dataclass(frozen=True)
class DocumentText:
    """What a document says, line by line; `pages` is the number of pages that were read."""

    text: str
    method: Literal["text layer", "ocr"]
    pages: int


def read(path: Path) -> DocumentText:
    """The text of a PDF, PNG or JPEG, told apart by their first bytes, not by their name.

    Raises `DocumentUnreadable`, and `DeadlineExceeded` between pages.
    """
    kind = _kind(path)
    if kind == "PDF":
        return _read_pdf(path)
    deadline.check()
    return DocumentText(_recognise(_open_image(path, kind)), "ocr", 1)


def _kind(path: Path) -> str:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(1024)
    except OSError as error:
        raise DocumentUnreadable(f"{path.name}: cannot be opened ({error.strerror}); upload it again") from error
    if not size:
        raise DocumentUnreadable(f"{path.name}: 0 bytes; the upload broke off, upload it again")
    if size > MAX_BYTES:
        raise DocumentUnreadable(f"{path.name}: {size} bytes, more than {MAX_BYTES}; upload a smaller scan")
    for magic, kind in _HEADS.items():
        if head.startswith(magic) or (kind == "PDF" and magic in head):  # PDF readers allow 1,024 bytes before it
            return kind
    raise DocumentUnreadable(f"{path.name}: starts with {head[:16]!r}, which is no PDF, PNG or JPEG; upload one of these")


def _read_pdf(path: Path) -> DocumentText:
    import pypdfium2 as pdfium

    with _pdfium:
        try:
            document = pdfium.PdfDocument(path)
        except pdfium.PdfiumError as error:
            raise _broken_pdf(path, error) from error
        try:
            lines = _text_layer(path, document)
            pages = len(document)
            if lines is not None:
                return DocumentText("\n".join(lines), "text layer", len(lines))
            images = min(pages, MAX_PAGES)
        finally:
            document.close()
    return DocumentText("\n".join(_recognise(_rendered(path, page)) for page in range(images)), "ocr", images)
