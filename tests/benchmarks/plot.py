"""Draws figures as SVG: a row a measure, a dot a library, on a logarithmic axis of how many times better than one.

The drawing follows the reader's scheme, light or dark, by a style sheet of its own; without one that is heard it is
dark on nothing, which is readable on white.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 900, 250, 40, 34, 74
_COLOURS = {
    "nightshift": ("#0b6e4f", "#4fd1a5"),
    "dramatiq": ("#57606a", "#9aa4af"),
    "celery": ("#7a9a01", "#b5d334"),
    "rq": ("#c0392b", "#ff8a7a"),
    "arq": ("#8e44ad", "#cf9cf0"),
    "taskiq": ("#1f6feb", "#79b8ff"),
    "huey": ("#b8860b", "#f2c94c"),
    "saq": ("#d35400", "#ffb072"),
}
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 10px } .faint { fill: #57606a }
.axis { stroke: #d0d7de } .one { stroke: #57606a; stroke-dasharray: 4 3 }
"""
_DARK = "text { fill: #e6edf3 } .faint { fill: #9aa4af } .axis { stroke: #3d444d } .one { stroke: #9aa4af }"


@dataclass(frozen=True)
class Row:
    """A measure: by library, how many times better than the one that all are compared with; and what no dot says."""

    label: str
    ratios: Mapping[str, float]
    words: str = ""


def draw(title: str, rows: Sequence[Row]) -> str:
    """The whole drawing; libraries that no colour is known for are drawn as text."""
    highest = max((ratio for row in rows for ratio in row.ratios.values()), default=10.0)
    lowest = min((ratio for row in rows for ratio in row.ratios.values()), default=0.1)
    low, high = math.floor(math.log10(min(lowest, 0.99))), math.ceil(math.log10(max(highest, 1.01)))
    height = _TOP + _ROW * len(rows) + 46
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}">',
        f"<style>{_style()}</style>",
        f'<text x="12" y="24" style="font-size:15px;font-weight:600">{escape(title)}</text>',
        *_legend(rows),
        *_axis(low, high, height),
    ]
    for number, row in enumerate(rows):
        parts += _row(row, _TOP + _ROW * number + _ROW // 2, low, high)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _style() -> str:
    light = " ".join(f".{name} {{ fill: {colours[0]} }}" for name, colours in _COLOURS.items())
    dark = " ".join(f".{name} {{ fill: {colours[1]} }}" for name, colours in _COLOURS.items())
    return f"{_STYLE}{light}\n@media (prefers-color-scheme: dark) {{ {_DARK} {dark} }}"


def _legend(rows: Sequence[Row]) -> list[str]:
    seen = [name for name in _COLOURS if any(name in row.ratios for row in rows)]
    return [
        f'<circle class="{name}" cx="{18 + 105 * place}" cy="44" r="5"/>'
        f'<text x="{28 + 105 * place}" y="48">{name}</text>'
        for place, name in enumerate(seen)
    ]


def _axis(low: int, high: int, height: int) -> list[str]:
    found = []
    for power in range(low, high + 1):
        x, kind = _x(10.0**power, low, high), "one" if power == 0 else "axis"
        found.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{height - 34}"/>')
        found.append(f'<text class="faint" x="{x:.1f}" y="{height - 18}" text-anchor="middle">{10.0**power:g}×</text>')
    found.append(f'<text class="faint" x="12" y="{height - 18}">times better than stock dramatiq</text>')
    return found


def _row(row: Row, y: int, low: int, high: int) -> list[str]:
    found = [
        f'<text x="{_LEFT - 14}" y="{y + 4}" text-anchor="end">{escape(row.label)}</text>',
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>',
    ]
    if row.words:
        found.append(f'<text class="faint small" x="{_LEFT}" y="{y + 17}">{escape(row.words)}</text>')
    for name, ratio in sorted(row.ratios.items(), key=lambda item: item[0] == "nightshift"):  # ours on top
        told = escape(f"{name}: {ratio:.3g} times")
        radius = 7 if name == "nightshift" else 5
        found.append(
            f'<circle class="{escape(name)}" cx="{_x(ratio, low, high):.1f}" cy="{y}" r="{radius}">'
            f"<title>{told}</title></circle>"
        )
    return found


def _x(ratio: float, low: int, high: int) -> float:
    share = (math.log10(ratio) - low) / (high - low)
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)
