"""Writes the smallest PDF that PDF 1.4 allows: one page, either text set in Helvetica or one JPEG picture.

Texts are encoded as WinAnsi, which holds umlauts and the euro sign; another script raises `UnicodeEncodeError`. Not
guaranteed: that right-aligned letters end flush, since only the widths of what amounts are made of are known.
Nothing in the file depends on the time, so the same sheet gives the same bytes.
"""

from __future__ import annotations

from books.sandbox.receipts.sheet import Placed, Sheet

_FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
_NARROW = {".": 278, ",": 278, ":": 278, " ": 278, "-": 333, "/": 278, "%": 889, "E": 667, "U": 722, "R": 722, "l": 222}
_USUAL = 556  # thousandths of the size: digits, the euro and the pound sign, most small letters


def text_pdf(sheet: Sheet) -> bytes:
    """A page with the sheet's texts as a text layer."""
    operators = b"BT\n" + b"".join(_shown(placed, sheet.height) for placed in sheet.texts) + b"ET"
    return _page(sheet.width, sheet.height, b"/Font << /F1 5 0 R >>", _stream(b"", operators), _FONT)


def picture_pdf(jpeg: bytes, pixels: tuple[int, int], width: float, height: float) -> bytes:
    """A page that is one RGB picture from edge to edge, as scanners write it."""
    head = b"/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceRGB" % pixels
    image = _stream(head + b" /BitsPerComponent 8 /Filter /DCTDecode", jpeg)
    content = _stream(b"", b"%.2f 0 0 %.2f 0 0 cm /Im1 Do" % (width, height))
    return _page(width, height, b"/XObject << /Im1 5 0 R >>", content, image)


def _shown(placed: Placed, height: float) -> bytes:
    x = placed.x - (_width(placed) if placed.right else 0)
    text = placed.text.encode("cp1252").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
    return b"/F1 %.1f Tf 1 0 0 1 %.2f %.2f Tm (%s) Tj\n" % (placed.size, x, height - placed.y, text)


def _width(placed: Placed) -> float:
    return sum(_NARROW.get(letter, _USUAL) for letter in placed.text) * placed.size / 1000


def _stream(head: bytes, content: bytes) -> bytes:
    return b"<< %s /Length %d >>\nstream\n%s\nendstream" % (head, len(content), content)


def _page(width: float, height: float, resources: bytes, content: bytes, resource: bytes) -> bytes:
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %.2f %.2f] /Resources << %s >> /Contents 4 0 R >>"
    return _file(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            page % (width, height, resources),
            content,
            resource,
        ]
    )


def _file(objects: list[bytes]) -> bytes:
    """Objects numbered from 1, then where each begins, as readers look it up from the end."""
    written = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"
    starts = []
    for number, content in enumerate(objects, start=1):
        starts.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    table += b"".join(b"%010d 00000 n \n" % start for start in starts)
    trailer = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(written))
    return written + table + trailer
