"""The reading order of a page's pieces of text: what stands at the same height is one line, left to right.

So a word and its amount stay together; parts that stand apart are joined by two spaces. What was found on a page that
is a little askew is levelled first. Not guaranteed: columns, which are read across; a page that is bent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

_CORNER = 3.0  # pixels that a corner of a recognised box is off


@dataclass(frozen=True)
class Part:
    """A piece of text and where it stands; heights grow downwards."""

    left: float
    right: float
    middle: float
    height: float
    text: str


def levelled(boxes: list[list[tuple[float, float]]], texts: Sequence[str]) -> list[Part]:
    """Boxes (corners clockwise from the top left) as parts of a page turned back so that its lines are level.

    The widest boxes tell the slope to within what a corner that is off by `_CORNER` does to them. Within that, the one
    wins that leaves the fewest lines, and of those the one that leaves their parts most level.
    """
    widest = sorted(boxes, key=lambda box: box[1][0] - box[0][0])[-(len(boxes) // 3 + 1) :]
    slope = median(math.atan2(b[1] - a[1], b[0] - a[0]) for a, b, _, _ in widest)
    doubt = math.atan2(_CORNER, max(1.0, median(b[0] - a[0] for a, b, _, _ in widest)))
    turned = [_turned(boxes, texts, slope + doubt * step / 8) for step in range(-8, 9)]
    return min(turned, key=_unevenness)


def _turned(boxes: list[list[tuple[float, float]]], texts: Sequence[str], slope: float) -> list[Part]:
    sine, cosine = math.sin(slope), math.cos(slope)
    parts = []
    for box, text in zip(boxes, texts, strict=True):
        xs = [x * cosine + y * sine for x, y in box]
        ys = [y * cosine - x * sine for x, y in box]
        parts.append(Part(min(xs), max(xs), sum(ys) / 4, max(ys) - min(ys), text.strip()))
    return parts


def _unevenness(parts: list[Part]) -> tuple[int, float]:
    lines = _lines(parts)
    return len(lines), sum((part.middle - line[0].middle) ** 2 for line in lines for part in line)


def _lines(parts: list[Part]) -> list[list[Part]]:
    """Parts whose middles are within half a height of a line's first part are that line's."""
    lines: list[list[Part]] = []
    for part in sorted(parts, key=lambda part: part.middle):
        line = lines[-1] if lines else None
        if line and part.middle - line[0].middle < min(part.height, line[0].height) / 2:
            line.append(part)
        else:
            lines.append([part])
    return lines


def in_reading_order(parts: list[Part]) -> str:
    """The text of all parts, line under line."""
    return "\n".join(_joined(sorted(line, key=lambda part: part.left)) for line in _lines(parts))


def _joined(line: list[Part]) -> str:
    """Two spaces between parts that stand apart; less where a PDF sets words, or letters, one by one."""
    text, right = line[0].text, line[0].right
    for part in line[1:]:
        gap = (part.left - right) / max(part.height, 1.0)
        text += ("" if gap < 0.12 else " " if gap < 0.5 else "  ") + part.text
        right = max(right, part.right)
    return text
