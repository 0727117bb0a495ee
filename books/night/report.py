"""The night's report: one line a claim, each with what should be, what was found, and a verdict.

`red` means lost, doubled or stuck and makes the exit status 1. `apart` is work that expired because the machine was too
slow for the night's pace: said, not blamed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from rich.table import Table

Verdict = Literal["ok", "red", "apart", "said"]
_COLOURS = {"ok": "green", "red": "bold red", "apart": "yellow", "said": "dim"}


@dataclass(frozen=True)
class Line:
    """A claim. `which` names what is wrong, bounded for a person to read."""

    section: str
    claim: str
    expected: str
    found: str
    verdict: Verdict
    which: str = ""


def judged(
    section: str, claim: str, expected: object, found: object, wrong: Iterable[object] = (), verdict: Verdict = "red"
) -> Line:
    """`ok` where nothing is wrong, else `verdict` (red) with the first few of what is."""
    wrong = list(wrong)
    if not wrong:
        return Line(section, claim, str(expected), str(found), "ok")
    shown = ", ".join(str(item) for item in wrong[:5]) + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else "")
    return Line(section, claim, str(expected), str(found), verdict, shown)


def said(section: str, claim: str, found: object) -> Line:
    """A figure that is told and not judged."""
    return Line(section, claim, "", str(found), "said")


@dataclass(frozen=True)
class Waited:
    """A person who handed in a run: which, when by the night's clock, and for how many night seconds they waited."""

    run: str
    sent: str
    seconds: float


@dataclass
class Report:
    """All lines of one night."""

    seed: int
    seconds: float
    lines: list[Line] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    """What nights are compared by, in night seconds or rows; only in the JSON."""
    people: list[Waited] = field(default_factory=list)
    """Who handed in a run, whoever waited longest first; only in the JSON."""

    @property
    def red(self) -> list[Line]:
        return [line for line in self.lines if line.verdict == "red"]

    @property
    def exit_status(self) -> int:
        return 1 if self.red else 0

    def table(self, title: str = "") -> Table:
        """The report as a person reads it."""
        title = title or f"The night of seed {self.seed}, played in {self.seconds:g} s"
        table = Table(title=title, show_lines=False)
        for column in ("", "what", "should be", "found", "verdict"):
            table.add_column(column, overflow="fold")
        section = ""
        for line in self.lines:
            if line.section != section:
                table.add_section()
            head = line.section if line.section != section else ""
            section = line.section
            found = f"{line.found}: {line.which}" if line.which else line.found
            table.add_row(head, line.claim, line.expected, found, f"[{_COLOURS[line.verdict]}]{line.verdict}[/]")
        return table

    def write(self, path: Path) -> None:
        """The same as JSON."""
        content = {**asdict(self), "exit_status": self.exit_status}
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
