"""Nothing is scheduled."""

from __future__ import annotations

from fleet import Entry

SCHEDULE: list[Entry] = []
