"""Draws receipts into a folder, each with its truth in `<stem>.truth.json`; and two documents that are broken.

The same seed gives the same receipts. Not guaranteed: that a reader gets every field of noise; a test measures it.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from books.sandbox.receipts.layouts import LAYOUTS
from books.sandbox.receipts.pdf import picture_pdf, text_pdf
from books.sandbox.receipts.picture import photographed, printable
from books.sandbox.receipts.sheet import Printed, Sheet

if TYPE_CHECKING:
    from PIL.Image import Image

_TAKEN_AS = ("png", "jpg", "pdf")


@dataclass(frozen=True)
class Receipt:
    """A drawn document; `truth` holds merchant, date (ISO), gross, vat ("12.34" or None) and currency, as printed."""

    path: Path
    truth: dict[str, str | None]


def draw(seed: int, folder: Path, count: int = 40, ocr: int = 12) -> list[Receipt]:
    """`count` receipts: `ocr` of them without a text layer (PNG, JPEG, PDF of one picture), the others PDFs with one.

    The folder is made if need be; files of the same names are overwritten.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = Random(f"receipts {seed}")
    scanned = {number: place for place, number in enumerate(sorted(rng.sample(range(count), ocr)))}
    receipts = []
    for number in range(count):
        own = Random(f"receipt {seed} {number}")
        layout = LAYOUTS[number % len(LAYOUTS)]
        german = (number // len(LAYOUTS)) % 2 == 0
        printed = layout(own, german)
        stem = f"{number:02}-{layout.__name__.replace('_', '-')}-{'de' if german else 'en'}"
        if number in scanned:
            suffix = _TAKEN_AS[scanned[number] % len(_TAKEN_AS)]
            content = _taken(photographed(printed.sheet, own), suffix, printed.sheet)
        else:
            suffix, content = "pdf", text_pdf(printed.sheet)
        receipts.append(_write(folder / f"{stem}.{suffix}", content, printed, spelt=number in scanned))
    return receipts


def draw_broken(folder: Path) -> list[Path]:
    """A PDF that is none (a web page saved under that name) and a PNG of 0 bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    page, empty = folder / "broken-webpage.pdf", folder / "broken-empty.png"
    page.write_bytes(b"<html><head><title>Sign in</title></head><body>Your session has expired.</body></html>\n")
    empty.write_bytes(b"")
    return [page, empty]


def _taken(picture: Image, suffix: str, sheet: Sheet) -> bytes:
    buffer = io.BytesIO()
    if suffix == "png":
        picture.convert("L").save(buffer, "PNG")
        return buffer.getvalue()
    picture.save(buffer, "JPEG", quality=80)
    jpeg = buffer.getvalue()
    scale = sheet.width / picture.width
    return jpeg if suffix == "jpg" else picture_pdf(jpeg, picture.size, sheet.width, picture.height * scale)


def _write(path: Path, content: bytes, printed: Printed, *, spelt: bool) -> Receipt:
    truth: dict[str, str | None] = {
        "merchant": printable(printed.merchant) if spelt else printed.merchant,
        "date": printed.date,
        "gross": f"{printed.gross:.2f}",
        "vat": None if printed.vat is None else f"{printed.vat:.2f}",
        "currency": printed.currency,
    }
    path.write_bytes(content)
    path.with_suffix(".truth.json").write_text(json.dumps(truth, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    return Receipt(path, truth)
