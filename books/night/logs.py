"""Reads the JSON lines that processes of a night wrote: the fleet's logs and the sandbox's journals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file; other lines (a library's own print) are passed over."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("{"):
                try:
                    yield json.loads(line)
                except ValueError:  # the last line of a process that was killed while it wrote
                    continue


def events(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Every log event of this name, of all the fleet's processes."""
    for path in sorted((folder / "logs").glob("*.log")):
        yield from (line for line in lines(path) if line.get("event") == name)


def count_events(folder: Path, name: str, **values: str) -> int:
    """How many events of this name carry these values."""
    return sum(all(event.get(key) == value for key, value in values.items()) for event in events(folder, name))
