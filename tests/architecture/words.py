"""What the code says when something goes wrong, read from its source, and what the runbook tells of it.

An event is the first argument of a call of a logger, or of a name that stands for one (`say = log.info if … else
log.error`). Not seen: an event whose name is put together at run time, but for `f"slots_{verdict}"`, which stands for
each verdict.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from fleet.ledger import VERDICTS

ROOMS = ("fleet", "beat", "middleware", "config", "books", "actors", "janitors")
LOUD = ("error", "critical", "exception")
_LEVELS = (*LOUD, "debug", "info", "warning")
_LOGGER = re.compile(r"(^|[._])log$|get_logger\(.*\)$")
_PAGE = re.compile(r"when-things-go-wrong\.md#([\w-]+)")


@dataclass
class Said:
    """Events by name, with where each is logged (`loud` at ERROR or above), and anchors with where each is named."""

    events: dict[str, str] = field(default_factory=dict)
    loud: dict[str, str] = field(default_factory=dict)
    anchors: dict[str, str] = field(default_factory=dict)


def said(root: Path) -> Said:
    """Of all rooms below a root."""
    found = Said()
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            _read(ast.parse(path.read_text()), str(path.relative_to(root)), found)
    return found


def _read(tree: ast.Module, where: str, found: Said) -> None:
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        speakers = {"log": ""} | _speakers(function)
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            level = _level(call.func, speakers)
            for event in _names(call.args[0]) if level and call.args else ():
                at = f"{where}:{call.lineno}"
                found.events.setdefault(event, at)
                if any(loud in level for loud in LOUD):
                    found.loud.setdefault(event, at)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for anchor in _PAGE.findall(node.value):
                found.anchors.setdefault(anchor, f"{where}:{node.lineno}")
        elif isinstance(node, ast.keyword) and node.arg == "runbook":
            for anchor in filter(None, _names(node.value)):
                found.anchors.setdefault(anchor.rpartition("#")[2], f"{where}:{node.value.lineno}")


def _speakers(function: ast.FunctionDef) -> dict[str, str]:
    """Local names that stand for a logger's method, with the source of what they may be."""
    return {
        target.id: ast.unparse(node.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and re.search(r"\blog\.(info|error|warning|critical)\b", ast.unparse(node.value))
        for target in node.targets
        if isinstance(target, ast.Name) and not isinstance(node.value, ast.Call)
    }


def _level(called: ast.expr, speakers: dict[str, str]) -> str:
    """What a call logs at; empty for any other call."""
    if isinstance(called, ast.Name):
        return speakers.get(called.id, "")
    if isinstance(called, ast.Attribute) and called.attr in _LEVELS and _LOGGER.search(ast.unparse(called.value)):
        return called.attr
    return ""


def _names(value: ast.expr) -> Iterator[str]:
    """The event names, or anchors, that an expression may be."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.IfExp):
        yield from _names(value.body)
        yield from _names(value.orelse)
    elif isinstance(value, ast.JoinedStr) and ast.unparse(value) == "f'slots_{verdict}'":
        yield from (f"slots_{verdict}" for verdict in VERDICTS)


def alerts(rules: Path) -> list[str]:
    """The names of the alerts in a file of Prometheus rules."""
    groups = yaml.safe_load(rules.read_text())["groups"]
    return [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]


@dataclass(frozen=True)
class Row:
    """A row of the runbook's table: its cells, and of the first the anchors and what stands in backticks."""

    line: int
    cells: tuple[str, ...]

    @property
    def anchors(self) -> list[str]:
        return re.findall(r'<a id="([^"]+)"></a>', self.cells[0])

    @property
    def named(self) -> list[str]:
        return re.findall(r"`([^`]+)`", self.cells[0])

    @property
    def proofs(self) -> list[str]:
        return re.findall(r"\]\(\.\./([^)#]+)\)", self.cells[-1])


def rows(page: Path) -> list[Row]:
    """The rows of the first table of a page, without its head."""
    found = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("| ") and not line.startswith("| what you see"):
            found.append(Row(number, tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])))
    return found
