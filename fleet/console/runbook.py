"""`docs/when-things-go-wrong.md` of the application, as a page and a row at a time.

A row is found by what stands in its first cell (an event's name, or its anchor) or by its heading. Where the file is
not there, nothing is found, and the pages do without.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

PAGE = Path("docs", "when-things-go-wrong.md")
_NAME = re.compile(r"`([a-z][a-z0-9]*(?:_[a-z0-9]+)+)`")
_ANCHOR = re.compile(r'<a (?:id|name)="([^"]+)"></a>')
_HEADING = re.compile(r"^#+ +`?([\w -]+)`?", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True)
class Advice:
    """A row: what it means, what mends itself and when, what to do; as plain text."""

    anchor: str
    means: str
    mends: str
    act: str


@dataclass(frozen=True)
class Runbook:
    """The page's text and its rows by name."""

    text: str = ""
    rows: Mapping[str, Advice] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> Runbook:
        """The runbook below an application's root; an empty one where there is none."""
        path = root / PAGE
        text = path.read_text() if path.is_file() else ""
        rows: dict[str, Advice] = {}
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if line.startswith("|") and len(cells) >= 4:
                for name in (*_ANCHOR.findall(cells[0]), *_NAME.findall(cells[0])):
                    rows.setdefault(_slug(name), Advice(_slug(name), *map(_plain, cells[1:4])))
        return cls(text, rows)

    def find(self, name: str) -> Advice | None:
        """The row of an event or an anchor, however it is hyphenated."""
        return self.rows.get(_slug(name.rpartition("#")[2]))

    def has(self, name: str) -> bool:
        """Whether there is a row or a heading of this name."""
        slug = _slug(name.rpartition("#")[2])
        return slug in self.rows or slug in {_slug(heading) for heading in _HEADING.findall(self.text)}

    def html(self) -> Markup:
        """The whole page; HTML that stands in the file is shown as text, but for anchors, which become ids."""
        from markdown_it import MarkdownIt

        parser = MarkdownIt("commonmark", {"html": False}).enable("table")
        made = parser.render(_ANCHOR.sub("", self.text))
        made = re.sub(r"<table>.*?</table>", _table, made, flags=re.DOTALL)
        made = re.sub(r"<h(\d)>(.*?)</h\1>", _heading, made, flags=re.DOTALL)
        # Links lead into the source tree, which is not served.
        return Markup(re.sub(r'<a href="(?!https?:|#)[^"]*">(.*?)</a>', r"\1", made, flags=re.DOTALL))


def _table(found: re.Match[str]) -> str:
    """With an id for each name in a first cell, and in each cell the name of its column, for a narrow screen."""
    labels = re.findall(r"<th>(.*?)</th>", found[0], flags=re.DOTALL)

    def row(cells: re.Match[str]) -> str:
        made = re.findall(r"<td>(.*?)</td>", cells[1], flags=re.DOTALL)
        names = re.findall(r"<code>([a-z][a-z0-9]*(?:_[a-z0-9]+)+)</code>", made[0])
        marks = "".join(f'<span id="{_slug(name)}"></span>' for name in names)
        made[0] = marks + made[0]
        told = (f'<td data-label="{label}">{cell}</td>' for label, cell in zip(labels, made, strict=False))
        return f"<tr>{''.join(told)}</tr>"

    body = re.sub(r"<tr>((?:\s*<td>.*?</td>)+)\s*</tr>", row, found[0], flags=re.DOTALL)
    return body.replace("<table>", '<table class="stack">').replace("<th>", '<th scope="col">')


def _heading(found: re.Match[str]) -> str:
    return f'<h{found[1]} id="{_slug(re.sub("<[^>]*>", "", found[2]))}">{found[2]}</h{found[1]}>'


def _slug(name: str) -> str:
    return re.sub(r"[_\s]+", "-", name.strip().lower())


def _plain(cell: str) -> str:
    return _LINK.sub(r"\1", cell).replace("`", "")
