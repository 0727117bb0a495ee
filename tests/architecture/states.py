"""The statuses as the models define them, and the diagrams as docs/states.md draws them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/states.md"


def defined() -> dict[str, dict[str, str]]:
    """Enum -> status -> the line beside it, of every enum of the models whose name ends in Status."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted((ROOT / "books/models").glob("*.py")):
        text = path.read_text()
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Status"):
                members = [one for one in node.body if isinstance(one, ast.Assign)]
                found[node.name] = {
                    str(ast.literal_eval(one.value)): lines[one.lineno - 1].partition("#")[2].strip() for one in members
                }
    return found


@dataclass(frozen=True)
class Drawn:
    """What the page has of one enum; an arrow from `[*]` begins at None."""

    meanings: dict[str, str]
    arrows: set[tuple[str | None, str]]

    def ends(self) -> set[str]:
        """The statuses that no arrow leads out of."""
        return set(self.meanings) - {begin for begin, _ in self.arrows if begin is not None}


def drawn() -> dict[str, Drawn]:
    """Enum -> its part of the page."""
    found = {}
    for part in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        (name,) = re.findall(r"`(\w+)`", part.splitlines()[0])
        meanings = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", part, re.MULTILINE))
        arrows = {
            (None if begin == "[*]" else begin, end)
            for begin, end in re.findall(r"^ +(\[\*\]|\w+) --> (\w+) : \S", part, re.MULTILINE)
        }
        found[name] = Drawn(meanings, arrows)
    return found
