"""`docs/when-things-go-wrong.md` of the application, as a page and a row at a time; and what other pages say of alerts.

A row is found by what stands in its first cell, an event's name or an anchor. A page beside it with headings that are
such names (`### queue_lag`) belongs to the runbook too. Where there is no such file nothing is found, and pages do
without.
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
_SHOWN_ANCHOR = re.compile(r"&lt;a (?:id|name)=&quot;([^&]+)&quot;&gt;&lt;/a&gt;")
_SECTION = re.compile(r"^#{2,4} +`?([a-z]+(?:_[a-z]+)+)`?[ ]*\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True)
class Advice:
    """What a row or a section says, as plain text; `means` and `mends` are empty where it does not say that apart."""

    anchor: str
    means: str
    mends: str
    act: str


@dataclass(frozen=True)
class Runbook:
    """The pages' text and their rows by name."""

    text: str = ""
    rows: Mapping[str, Advice] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> Runbook:
        """The runbook below an application's root; an empty one where there is none."""
        page = root / PAGE
        if not page.is_file():
            return cls()
        beside = [path.read_text() for path in sorted(page.parent.glob("*.md")) if path != page]
        texts = [page.read_text(), *(text for text in beside if _SECTION.search(text))]
        rows: dict[str, Advice] = {}
        for text in texts:
            for name, said in _SECTION.findall(text):
                rows.setdefault(_slug(name), Advice(_slug(name), "", "", _plain(" ".join(said.split()))))
            for line in text.splitlines():
                _take_row(line, rows)
        return cls("\n\n".join(texts), rows)

    def find(self, name: str) -> Advice | None:
        """The row of an event or an anchor, however it is hyphenated."""
        return self.rows.get(_slug(name.rpartition("#")[2]))

    def html(self) -> Markup:
        """The whole; HTML that stands in a file is shown as text, but for anchors, which become ids."""
        from markdown_it import MarkdownIt

        made = MarkdownIt("commonmark", {"html": False}).enable("table").render(self.text)
        made = _SHOWN_ANCHOR.sub(lambda found: f'<span id="{_slug(found[1])}"></span>', made)
        made = re.sub(r"<table>.*?</table>", _table, made, flags=re.DOTALL)
        made = re.sub(r"<h(\d)>(.*?)</h\1>", _heading, made, flags=re.DOTALL)
        # Links lead into the source tree, which is not served.
        return Markup(re.sub(r'<a href="(?!https?:|#)[^"]*">(.*?)</a>', r"\1", made, flags=re.DOTALL))


def _take_row(line: str, rows: dict[str, Advice]) -> None:
    cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
    if not line.startswith("|") or len(cells) < 4:
        return
    for name in (*_ANCHOR.findall(cells[0]), *_NAME.findall(cells[0])):
        rows.setdefault(_slug(name), Advice(_slug(name), *map(_plain, cells[1:4])))


def _table(found: re.Match[str]) -> str:
    """With an id for each name in a first cell, and in each cell the name of its column, for a narrow screen."""
    labels = re.findall(r"<th>(.*?)</th>", found[0], flags=re.DOTALL)

    def row(cells: re.Match[str]) -> str:
        made = re.findall(r"<td>(.*?)</td>", cells[1], flags=re.DOTALL)
        names = re.findall(r"<code>([a-z][a-z0-9]*(?:_[a-z0-9]+)+)</code>", made[0])
        made[0] = "".join(f'<span id="{_slug(name)}"></span>' for name in names) + made[0]
        told = (f'<td data-label="{label}">{cell}</td>' for label, cell in zip(labels, made, strict=False))
        return f"<tr>{''.join(told)}</tr>"

    body = re.sub(r"<tr>((?:\s*<td>.*?</td>)+)\s*</tr>", row, found[0], flags=re.DOTALL)
    return body.replace("<table>", '<table class="stack">').replace("<th>", '<th scope="col">')


def _heading(found: re.Match[str]) -> str:
    """A page beside the first begins with a heading of the second rank: there is one title."""
    rank = found[1] if found[1] != "1" else "2"
    return f'<h{rank} id="{_slug(re.sub("<[^>]*>", "", found[2]))}">{found[2]}</h{rank}>'


def _slug(name: str) -> str:
    return re.sub(r"[_\s]+", "-", name.strip().lower())


def _plain(cell: str) -> str:
    return _LINK.sub(r"\1", _ANCHOR.sub("", cell)).replace("`", "")
