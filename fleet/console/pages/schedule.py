"""Schedule: of each entry what comes next and what became of its last slot; an entry's own page has its ledger, and the
forms that pause, resume and fire it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from starlette.requests import Request

from fleet import by_hand, ledger
from fleet.by_hand import Pause
from fleet.clock import clock
from fleet.console.desk import Desk
from fleet.console.rendering import Page
from fleet.declarations import Entry
from fleet.ledger import LedgerLine
from fleet.slots import next_slot

MOST_ENTRIES = 200
_MOST_LINES = 50
_TONES = {"fired": "good", "expired": "bad", "paused": "warn", "overlapped": "warn", "coalesced": "warn"}


@dataclass(frozen=True)
class EntryRow:
    """An entry, its next slot in its own zone, its last line, and how it is paused."""

    entry: Entry
    lane: str
    next: datetime | None
    last: LedgerLine | None
    paused: Pause | None

    @property
    def tone(self) -> str:
        """Of its last line."""
        return _TONES.get(self.last.verdict, "") if self.last else ""

    def local(self, instant: datetime | None) -> str:
        """An instant as clocks of the entry's zone show it."""
        return "-" if instant is None else f"{instant.astimezone(ZoneInfo(self.entry.tz)):%a %H:%M:%S}"


def rows(desk: Desk, entries: tuple[Entry, ...]) -> list[EntryRow]:
    """These entries in order of their next slot; those that have none come last."""
    client, ns, now = desk.broker.client, desk.broker.namespace, clock.now()
    last = ledger.last(client, ns, [entry.name for entry in entries])
    paused = by_hand.paused(client, ns)
    made = [
        EntryRow(
            entry,
            desk.lane_name(desk.app.actor(entry.actor).queue_name),
            next_slot(entry, now),
            last.get(entry.name),
            paused.get(entry.name),
        )
        for entry in entries
    ]
    return sorted(made, key=lambda row: (row.next is None, row.next))


def build(desk: Desk, request: Request) -> dict[str, Any]:
    entries = desk.app.schedule[:MOST_ENTRIES]
    return {"rows": rows(desk, entries), "more": len(desk.app.schedule) - len(entries)}


def build_entry(desk: Desk, request: Request) -> dict[str, Any]:
    entry = desk.app.entry(request.path_params["entry"])
    (row,) = rows(desk, (entry,))
    lines = ledger.read(desk.broker.client, desk.broker.namespace, entry.name, _MOST_LINES)
    return {"row": row, "lines": lines[::-1], "title": entry.name, "tones": _TONES}


PAGE = Page("/schedule", "Schedule", "schedule.html", build, live=True)
ENTRY = Page("/schedule/{entry}", "Entry", "entry.html", build_entry, nav=False)
