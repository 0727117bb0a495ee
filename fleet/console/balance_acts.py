"""Hold an elastic entry, release it, and have the balancer decide or not; as `fleet balance` does."""

from __future__ import annotations

from collections.abc import Mapping

from fleet import allowance, audit, balance_by_hand
from fleet.clock import clock
from fleet.console.desk import Desk
from fleet.console.reasons import Done, reason
from fleet.console.sessions import Visitor
from fleet.declarations import Entry
from fleet.errors import FleetError
from fleet.hours import hours

_PAGE = "/balancer"


def hold(desk: Desk, visitor: Visitor, given: Mapping[str, str]) -> Done:
    entry, because = _entry(desk, given), reason(given)
    until = clock.now() + hours("hours", given.get("hours", ""))
    with audit.noting(desk.broker, who=visitor.name, what="hold", subject=entry.name, because=because) as note:
        before = balance_by_hand.hold(desk.broker, entry, until, by=visitor.name, because=because)
        note.before = f"held by {before.by} until {before.until:%Y-%m-%d %H:%M} UTC" if before else "not held"
        note.after = f"held until {until:%Y-%m-%d %H:%M} UTC"
    return Done(_PAGE, f"{entry.name} is {note.after}.")


def release(desk: Desk, visitor: Visitor, given: Mapping[str, str]) -> Done:
    entry, because = _entry(desk, given), reason(given)
    with audit.noting(desk.broker, who=visitor.name, what="release", subject=entry.name, because=because) as note:
        before = balance_by_hand.release(desk.broker, entry, by=visitor.name, because=because)
        if before is None:
            raise FleetError(f"{entry.name} was not held any more.")
        note.before = f"held by {before.by} until {before.until:%Y-%m-%d %H:%M} UTC: {before.because}"
        note.after = "not held"
    return Done(_PAGE, f"{entry.name} is released.")


def switch_on(desk: Desk, visitor: Visitor, given: Mapping[str, str]) -> Done:
    return _switch(desk, visitor, given, on=True)


def switch_off(desk: Desk, visitor: Visitor, given: Mapping[str, str]) -> Done:
    return _switch(desk, visitor, given, on=False)


def _switch(desk: Desk, visitor: Visitor, given: Mapping[str, str], *, on: bool) -> Done:
    because, told = reason(given), "on" if on else "off"
    entries = [entry for entry in desk.app.schedule if entry.elastic is not None]
    what, subject = f"balancer {told}", ", ".join(entry.name for entry in entries)
    with audit.noting(desk.broker, who=visitor.name, what=what, subject=subject, because=because) as note:
        before = balance_by_hand.switch(desk.broker, on, entries, by=visitor.name, because=because)
        note.before, note.after = f"off by {before.by}: {before.because}" if before else "on", told
    return Done(_PAGE, f"The balancer is {told}.")


def _entry(desk: Desk, given: Mapping[str, str]) -> Entry:
    return allowance.elastic_entry(desk.app.schedule, given["entry"])
