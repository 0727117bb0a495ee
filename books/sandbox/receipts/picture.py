"""Turns a sheet into a picture as a scanner or a phone would take it: skewed, blurred, noisy, yet readable.

Pillow's built-in font has no umlauts and neither the euro nor the pound sign: `printable` gives what it can print. Not
guaranteed: the same bytes from another version of Pillow or of its JPEG library.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from books.sandbox.receipts.sheet import Sheet

if TYPE_CHECKING:
    from PIL.Image import Image

_SPELT = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss", "€": "EUR", "£": "GBP ", "§": "Par."}
)
_TALLEST = 1250.0  # pixels


def printable(text: str) -> str:
    """The text in letters that the built-in font has."""
    return text.translate(_SPELT).encode("ascii", "replace").decode("ascii")


def photographed(sheet: Sheet, rng: Random) -> Image:
    """The sheet in RGB: at least half are skewed by 1 to 3 degrees, all a little blurred and noisy."""
    from PIL import Image, ImageFilter

    paper = _printed(sheet)
    skew = rng.choice((0.0, 1.0, 1.0, 1.0)) * rng.choice((-1, 1)) * rng.uniform(1, 3)
    paper = paper.rotate(skew, resample=Image.Resampling.BICUBIC, expand=True, fillcolor=232)
    paper = paper.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.9)))
    noise = Image.frombytes("L", paper.size, rng.randbytes(paper.width * paper.height))
    return Image.blend(paper, noise, rng.uniform(0.04, 0.14)).convert("RGB")


def _printed(sheet: Sheet) -> Image:
    from PIL import Image, ImageDraw, ImageFont

    scale = min(2.0, _TALLEST / sheet.height)
    paper = Image.new("L", (round(sheet.width * scale), round(sheet.height * scale)), 250)
    pen = ImageDraw.Draw(paper)
    for placed in sheet.texts:
        font = ImageFont.load_default(size=placed.size * scale)
        at = (placed.x * scale, placed.y * scale)
        pen.text(at, printable(placed.text), font=font, fill=30, anchor="rs" if placed.right else "ls")
    return paper
