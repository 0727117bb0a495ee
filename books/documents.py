"""Reads a document's text: the text layer of a PDF's page where it has one, else optical character recognition (OCR).

Works alone on the machine: the recognition models lie in the `rapidocr` wheel. PDFium is not thread safe and one
engine is kept a process, so a process's documents pass those one after the other; ONNX runs on one thread, since a
lane's processes share the cores. Reading order is restored (`books.reading_order`).

Not guaranteed: that OCR reads right (a page turned by 90 or 180 degrees comes out as noise); anything beyond the first
`MAX_PAGES` pages, or `MAX_SCANNED` of those without a text layer (`pages` says how many were read); that a picture
inside a PDF is small, since PDFium decodes it. A document that cannot be read raises `DocumentUnreadable`, a picture of
too many pixels before they are decoded, and a page of no scan's shape before it is drawn. The soft budget is asked
between pages.
"""

from __future__ import annotations

import math
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from books.reading_order import Part, in_reading_order, levelled
from fleet import deadline
from fleet.errors import FleetError

if TYPE_CHECKING:
    from PIL.Image import Image
    from pypdfium2 import PdfDocument, PdfPage

MAX_PAGES = 50
MAX_SCANNED = 5
MAX_BYTES = 50_000_000
MAX_PIXELS = 40_000_000  # an A4 page at 600 dpi has 35 million
MAX_STRETCH = 20  # a till slip is up to 15 times as long as wide
_READ_PIXELS = 1_200_000  # a picture is brought down to this; more costs time and reads no better
_LARGEST_SCALE = 200 / 72  # of a rendered page: 200 dpi
_TEXT_LAYER = 30  # letters and digits from which on a text layer is believed to be more than a scanner's stamp
_HEADS = {b"%PDF-": "PDF", b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG"}

_pdfium_lock = threading.Lock()
_engine_lock = threading.Lock()


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
    if _kind(path) == "PDF":
        read = _read_pdf(path)
    else:
        deadline.check()
        read = DocumentText(_recognise(_picture(path)), "ocr", 1)
    if not read.text.strip():
        raise DocumentUnreadable(f"{path.name}: no text on {read.pages} page(s); scan it again, upright and in focus")
    return read


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
    raise DocumentUnreadable(
        f"{path.name}: starts with {head[:16]!r}, which is no PDF, PNG or JPEG; upload one of these"
    )


def _read_pdf(path: Path) -> DocumentText:
    texts: list[str] = []
    scanned = 0
    with _opened(path) as document:
        with _pdfium_lock:
            pages = min(len(document), MAX_PAGES)
        for number in range(pages):
            deadline.check()
            found = _text_or_picture(path, document, number)
            if not isinstance(found, str):
                if scanned == MAX_SCANNED:
                    break
                scanned += 1
                found = _recognise(found)
            texts.append(found)
    return DocumentText("\n".join(texts), "ocr" if scanned else "text layer", len(texts))


@contextmanager
def _opened(path: Path) -> Iterator[PdfDocument]:
    from pypdfium2 import PdfDocument, PdfiumError

    with _pdfium_lock:
        try:
            document = PdfDocument(path)
        except PdfiumError as error:
            raise _refused(path, error) from error
    try:
        yield document
    finally:
        with _pdfium_lock:
            document.close()


def _refused(path: Path, error: Exception) -> DocumentUnreadable:
    if "password" in str(error).lower():
        return DocumentUnreadable(f"{path.name}: a PDF protected by a password; upload one without")
    size = path.stat().st_size
    return DocumentUnreadable(f"{path.name}: {size} bytes that start like a PDF, but {error} Export it again")


def _text_or_picture(path: Path, document: PdfDocument, number: int) -> str | Image:
    """A page's text layer, or the page as a picture if it has none that is worth the name."""
    from pypdfium2 import PdfiumError

    with _pdfium_lock:
        try:
            page = document[number]
            try:
                text = _text_layer(page)
                if sum(map(str.isalnum, text)) >= _TEXT_LAYER:
                    return text
                return _rendered(page, f"{path.name}: page {number + 1}")
            finally:
                page.close()
        except PdfiumError as error:
            raise DocumentUnreadable(f"{path.name}: page {number + 1} is broken ({error}); export it again") from error


def _text_layer(page: PdfPage) -> str:
    textpage = page.get_textpage()
    try:
        parts = []
        for index in range(textpage.count_rects()):
            left, bottom, right, top = textpage.get_rect(index)
            text = textpage.get_text_bounded(left, bottom, right, top).strip()
            if text:
                parts.append(Part(left, right, -(top + bottom) / 2, top - bottom, text))
        return in_reading_order(parts)
    finally:
        textpage.close()


def _rendered(page: PdfPage, subject: str) -> Image:
    width, height = page.get_size()
    bitmap = page.render(scale=_scale(width, height, subject))
    try:
        picture: Image = bitmap.to_pil().convert("RGB")
        return picture
    finally:
        bitmap.close()


def _scale(width: float, height: float, subject: str) -> float:
    """At which a page of this size, in points, is drawn.

    Each side is rounded up to a pixel, so the area alone bounds nothing: a page of 400,000,000 x 0.003 points would be
    1.2 GB. Within `MAX_STRETCH` rounding adds some thousand pixels.
    """
    scale = min(_LARGEST_SCALE, math.sqrt(_READ_PIXELS / max(1.0, width * height)))
    if not 0 < max(width, height) <= MAX_STRETCH * min(width, height) < math.inf:
        raise DocumentUnreadable(f"{subject} is {width:g} x {height:g} points, which is no scan; scan it again")
    return scale


def _picture(path: Path) -> Image:
    """A PNG or JPEG, upright, on white, in RGB; its size is judged by its head alone, before it is decoded."""
    from PIL import Image, UnidentifiedImageError

    bombs = (Image.DecompressionBombError, Image.DecompressionBombWarning)
    try:
        with Image.open(path, formats=("PNG", "JPEG")) as picture:
            width, height = picture.size
            if width * height > MAX_PIXELS or max(width, height) > MAX_STRETCH * min(width, height):
                raise DocumentUnreadable(f"{path.name}: {width} x {height} pixels, which is no scan; scan it again")
            upright = _upright(picture)
            if upright.mode.startswith("I"):  # 16 bits a pixel, which a conversion would clip
                upright = upright.point(lambda value: value / 256).convert("L")
            rgba = upright.convert("RGBA")
            return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    except bombs as error:
        raise DocumentUnreadable(f"{path.name}: {error} Scan it again with fewer dots per inch") from error
    except (OSError, SyntaxError, ValueError, EOFError, struct.error) as error:
        reason = "no picture follows its head" if isinstance(error, UnidentifiedImageError) else error
        found = f"{path.stat().st_size} bytes, and {reason}"
        raise DocumentUnreadable(f"{path.name}: a broken picture ({found}); upload it again") from error


def _upright(picture: Image) -> Image:
    """Turned as its EXIF says. Pillow's `exif_transpose` also writes the EXIF anew, and breaks at odd ones."""
    from PIL.ExifTags import Base
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    picture.load()  # a PNG's EXIF may stand behind its pixels
    turn = turns.get(picture.getexif().get(Base.Orientation, 1))
    return picture if turn is None else picture.transpose(turn)


@cache
def _ocr_engine() -> Any:
    """The process's one engine; call under its lock. No orientation step: it costs time, and scans stand upright."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when the runtime is loaded, which else reports to its maker
    import cv2
    from rapidocr import RapidOCR

    cv2.setNumThreads(1)
    return RapidOCR(
        params={
            "Global.use_cls": False,
            "Global.log_level": "error",
            "Global.max_side_len": 10_000,  # pictures come scaled by their pixels; a long slip must stay long
            "Det.limit_type": "max",
            "Det.limit_side_len": 10_000,
            "Rec.rec_batch_num": 1,  # no slower on one thread, and a tenth to a fifth less memory at its peak
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )


def _recognise(picture: Image) -> str:
    import numpy as np

    scale = math.sqrt(_READ_PIXELS / (picture.width * picture.height))
    if scale < 1:
        picture = picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))))
    pixels = np.asarray(picture)[:, :, ::-1]  # the engine wants blue first
    with _engine_lock:
        found = _ocr_engine()(np.ascontiguousarray(pixels))
    if found.boxes is None or not found.txts:
        return ""
    return in_reading_order(levelled([box.tolist() for box in found.boxes], found.txts))
