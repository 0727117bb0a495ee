"""Reading documents: text layers, pictures, reading order, and a sentence for each that cannot be read."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import zlib
from datetime import timedelta
from pathlib import Path

import pytest

from books import documents
from books.documents import DocumentUnreadable, read
from books.sandbox.receipts import draw, draw_broken
from books.sandbox.receipts.pdf import text_pdf
from books.sandbox.receipts.sheet import Placed, Sheet
from fleet import deadline
from fleet.errors import DeadlineExceeded
from tests.environment import child_path

PROTECTED = (  # an empty page behind RC4 with keys that no empty password opens
    b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n2 0 obj\n<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
    b"\nendobj\n3 0 obj\n<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>\nendobj\n4 0 obj\n<< /Filter /Standard"
    b" /V 1 /R 2 /P -4 /O <"
    + b"41" * 32
    + b"> /U <"
    + b"42" * 32
    + b"> >>\nendobj\ntrailer\n<< /Size 5 /Root 1 0 R /Encrypt 4 0 R"
    b" /ID [<41><41>] >>\n%%EOF\n"
)


def picture(path: Path, lines: list[tuple[str, str]], *, skew: float = 0.0) -> Path:
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("L", (640, 80 + 50 * len(lines)), 255)
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(size=24)
    for number, (left, right) in enumerate(lines):
        pen.text((40, 60 + 50 * number), left, font=font, fill=0, anchor="ls")
        pen.text((600, 60 + 50 * number), right, font=font, fill=0, anchor="rs")
    image.rotate(skew, expand=True, fillcolor=255).save(path)
    return path


def huge_png(path: Path, side: int) -> Path:
    """A PNG whose head speaks of side times side pixels, and that holds none."""
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    chunk = struct.pack(">I", len(head)) + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 1000) + b"IDAT")
    return path


def test_a_text_layer_is_read_with_umlauts_and_the_euro_sign(tmp_path: Path) -> None:
    sheet = Sheet(300, 200, texts=[Placed(20, 40, 12, "Bäckerei Größe & Söhne (Köln)"), Placed(20, 60, 12, "Gesamt"),
                                   Placed(280, 60, 12, "1.234,56 €", right=True)])  # fmt: skip
    (tmp_path / "a.pdf").write_bytes(text_pdf(sheet))
    document = read(tmp_path / "a.pdf")
    assert (document.method, document.pages) == ("text layer", 1)
    assert document.text.splitlines() == ["Bäckerei Größe & Söhne (Köln)", "Gesamt  1.234,56 €"]


def test_a_text_layer_written_out_of_order_is_read_from_top_to_bottom(tmp_path: Path) -> None:
    texts = [Placed(280, 60, 12, "1,00", right=True), Placed(280, 90, 12, "2,00", right=True)]
    texts += [Placed(20, 90, 12, "Second line of it"), Placed(20, 60, 12, "First line of it")]
    (tmp_path / "a.pdf").write_bytes(text_pdf(Sheet(300, 200, texts=texts)))
    assert read(tmp_path / "a.pdf").text == "First line of it  1,00\nSecond line of it  2,00"


@pytest.mark.parametrize("skew", [0.0, -3.0, 3.0])
def test_a_word_and_its_amount_stay_on_one_line_even_when_the_picture_is_skewed(tmp_path: Path, skew: float) -> None:
    lines = [("Kaffee", "3,20"), ("Kuchen", "4,50"), ("Gesamt", "7,70"), ("Bar", "10,00")]
    document = read(picture(tmp_path / "slip.png", lines, skew=skew))
    assert (document.method, document.pages) == ("ocr", 1)
    assert document.text.splitlines() == [f"{left}  {right}" for left, right in lines]


def test_a_scanned_pdf_of_many_pages_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    page = Image.open(picture(tmp_path / "page.png", [("Total", "1.00")]))
    page.save(tmp_path / "scan.pdf", save_all=True, append_images=[page] * 3)
    monkeypatch.setattr(documents, "MAX_SCANNED", 2)
    document = read(tmp_path / "scan.pdf")
    assert (document.method, document.pages) == ("ocr", 2)
    assert document.text.count("Total") == 2


def test_the_soft_budget_is_asked_between_pages(tmp_path: Path) -> None:
    path = picture(tmp_path / "slip.png", [("Total", "1.00")])
    with pytest.raises(DeadlineExceeded):
        deadline.run_within(timedelta(microseconds=1), read, path)


def test_reading_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("reading a document opened a connection")

    documents._ocr_engine.cache_clear()
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert "Total" in read(picture(tmp_path / "slip.png", [("Total", "1.00")])).text


def test_the_engine_leaves_no_device_id_and_reports_nothing_to_its_maker(tmp_path: Path) -> None:
    home, scan = tmp_path / "home", picture(tmp_path / "scan.png", [("TOTAL", "12.50")])
    home.mkdir()
    program = f"import pathlib; from books import documents; print(documents.read(pathlib.Path({str(scan)!r})).method)"
    here = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": child_path(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", program], env=here, capture_output=True, text=True, timeout=60)
    assert done.stdout == "ocr\n", done.stderr
    assert list(home.rglob("*")) == []


def test_threads_share_one_engine_and_get_their_own_texts(tmp_path: Path) -> None:
    receipts = draw(seed=2, folder=tmp_path, count=8, ocr=2)
    alone = [read(receipt.path) for receipt in receipts]
    together = [alone[0]] * len(receipts)

    def one(place: int) -> None:
        together[place] = read(receipts[place].path)

    threads = [threading.Thread(target=one, args=(place,)) for place in range(len(receipts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert together == alone


def test_the_module_is_imported_without_what_it_reads_with() -> None:
    heavy = "{'rapidocr', 'cv2', 'numpy', 'pypdfium2', 'PIL', 'onnxruntime'} & set(sys.modules)"
    code = f"import sys, books.documents, books.sandbox.receipts; sys.exit(', '.join({heavy}) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_each_broken_document_says_its_name_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    page, empty = draw_broken(tmp_path)
    with pytest.raises(DocumentUnreadable, match=r"broken-webpage\.pdf: starts with b'<html.*upload"):
        read(page)
    with pytest.raises(DocumentUnreadable, match=r"broken-empty\.png: 0 bytes.*upload it again"):
        read(empty)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("torn.pdf", b"%PDF-1.7\n1 0 obj\n<< /Type /Cat", "torn.pdf: 30 bytes that start like a PDF.*Export it again"),
        ("locked.pdf", PROTECTED, "locked.pdf: a PDF protected by a password; upload one without"),
        ("notes.txt", b"Milk, eggs", "notes.txt: starts with b'Milk, eggs', which is no PDF, PNG or JPEG"),
        (
            "head.jpg",
            b"\xff\xd8\xff\xe0nothing",
            "head.jpg: a broken picture .11 bytes, and Truncated.*upload it again",
        ),
    ],
)
def test_a_file_that_is_not_what_it_says_is_refused(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DocumentUnreadable, match=told):
        read(tmp_path / name)


def test_a_jpeg_that_breaks_off_is_refused(tmp_path: Path) -> None:
    whole = picture(tmp_path / "whole.jpg", [("Total", "1.00")]).read_bytes()
    (tmp_path / "torn.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DocumentUnreadable, match=r"torn\.jpg: a broken picture.*truncated"):
        read(tmp_path / "torn.jpg")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_its_exif_says_though_that_could_not_be_written_anew(
    tmp_path: Path, orientation: int
) -> None:
    from PIL import Image, ImageOps
    from PIL.ExifTags import Base

    exif = Image.Exif()
    exif[Base.Orientation], exif[Base.Make] = orientation, "Eight and more"
    sound, path = exif.tobytes(), tmp_path / "turned.png"
    text, rational = struct.pack(">HHI", Base.Make, 2, 15), struct.pack(">HHI", Base.Make, 5, 1)
    Image.frombytes("RGB", (3, 2), bytes(range(18))).save(path, exif=sound)
    with Image.open(path) as image:
        turned = ImageOps.exif_transpose(image).tobytes()
    Image.frombytes("RGB", (3, 2), bytes(range(18))).save(path, exif=sound.replace(text, rational))
    assert text in sound
    assert documents._picture(path).tobytes() == turned


@pytest.mark.parametrize("side", [7_000, 60_000])
def test_a_picture_of_too_many_pixels_is_refused_by_its_head(tmp_path: Path, side: int) -> None:
    with pytest.raises(DocumentUnreadable, match=r"bomb\.png: .*pixels.*can it again"):
        read(huge_png(tmp_path / "bomb.png", side))


@pytest.mark.parametrize(("width", "height"), [(4_000_000, 0.3), (0.3, 4_000_000), (2_100, 100)])
def test_a_page_without_text_that_is_no_scans_shape_is_refused_before_it_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: float, height: float
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the page was drawn")

    monkeypatch.setattr("pypdfium2.PdfPage.render", refuse)
    (tmp_path / "strip.pdf").write_bytes(text_pdf(Sheet(width, height, texts=[])))
    with pytest.raises(DocumentUnreadable, match=r"strip\.pdf: page 1 is .* points, which is no scan; scan it again"):
        read(tmp_path / "strip.pdf")


def test_a_page_as_long_as_a_till_slip_is_drawn(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (80, 20 * 80), "white").save(tmp_path / "slip.pdf")
    with pytest.raises(DocumentUnreadable, match=r"slip\.pdf: no text on 1 page"):
        read(tmp_path / "slip.pdf")


def test_a_blank_page_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentUnreadable, match=r"blank\.png: no text on 1 page"):
        read(picture(tmp_path / "blank.png", []))
    with pytest.raises(DocumentUnreadable, match=r"gone\.pdf: cannot be opened \(No such file"):
        read(tmp_path / "gone.pdf")
