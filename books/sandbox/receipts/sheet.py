"""A sheet of paper with text placed on it: what a layout produces, and a PDF or a picture is made of.

Measures are points (1/72 inch) from the top left corner. Not guaranteed: that texts do not overlap; layouts see to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

A4 = (595, 842)


@dataclass(frozen=True)
class Placed:
    """A text on its base line; `x` is its right end if `right`, else its left one."""

    x: float
    y: float
    size: float
    text: str
    right: bool = False


@dataclass
class Sheet:
    """Grows downwards line by line; `cut` ends a slip's paper below its last line."""

    width: float
    height: float = 0.0
    margin: float = 18.0
    y: float = 24.0
    texts: list[Placed] = field(default_factory=list)

    def line(self, left: str = "", right: str = "", *, size: float = 10, indent: float = 0) -> None:
        """A text at the left margin and one at the right margin, then the next line."""
        if left:
            self.texts.append(Placed(self.margin + indent, self.y, size, left))
        if right:
            self.texts.append(Placed(self.width - self.margin, self.y, size, right, right=True))
        self.y += size * 1.45

    def columns(self, *cells: tuple[float, str], size: float = 10) -> None:
        """Right-aligned texts that end at the given distances from the left edge; a negative one starts there."""
        self.texts += [Placed(abs(x), self.y, size, text, right=x >= 0) for x, text in cells]
        self.y += size * 1.45

    def gap(self, height: float = 8) -> None:
        """Empty paper."""
        self.y += height

    def cut(self) -> None:
        """End the paper here."""
        self.height = self.y + 12


@dataclass(frozen=True)
class Printed:
    """A finished sheet and what it truthfully says."""

    sheet: Sheet
    merchant: str
    date: str  # ISO
    gross: Decimal
    vat: Decimal | None
    currency: str
