"""What a person may do on the pages: each act changes one thing, and leaves a row in the audit.

Each gets the desk, the visitor, and what the form and the address gave; it raises an error of the engine where that
cannot stand, and returns what was done and which page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fleet import audit, by_hand
from fleet.console import balance_acts, dead_acts
from fleet.console.desk import Desk
from fleet.console.reasons import Done, reason
from fleet.console.sessions import Visitor
from fleet.declarations import Entry
from fleet.errors import FleetError
from fleet.views import told

Given = Mapping[str, str]
Act = Callable[[Desk, Visitor, Given], Done]


def pause(desk: Desk, visitor: Visitor, given: Given) -> Done:
    entry, because = _entry(desk, given), reason(given)
    with audit.noting(desk.broker, who=visitor.name, what="pause", subject=entry.name, because=because) as note:
        before = by_hand.pause(desk.broker, entry.name, by=visitor.name, because=because)
        note.before, note.after = f"paused {told(before)}" if before else "not paused", "paused"
    return Done(_page(entry), f"{entry.name} is paused.")


def resume(desk: Desk, visitor: Visitor, given: Given) -> Done:
    entry, because = _entry(desk, given), reason(given)
    with audit.noting(desk.broker, who=visitor.name, what="resume", subject=entry.name, because=because) as note:
        before = by_hand.resume(desk.broker, entry.name, by=visitor.name, because=because)
        if before is None:
            raise FleetError(f"{entry.name} was not paused; somebody else resumed it.")
        note.before, note.after = f"paused {told(before)}", "fires"
    return Done(_page(entry), f"{entry.name} is resumed.")


def fire(desk: Desk, visitor: Visitor, given: Given) -> Done:
    entry, because = _entry(desk, given), reason(given)
    with audit.noting(desk.broker, who=visitor.name, what="fire", subject=entry.name, because=because) as note:
        message = by_hand.fire_now(desk.app, desk.broker, entry, by=visitor.name, because=because)
        note.after = message
    queue = desk.app.actor(entry.actor).queue_name
    return Done(_page(entry), f"{entry.name} is sent to the queue {queue}, as {message}.")


def _entry(desk: Desk, given: Given) -> Entry:
    return desk.app.entry(given["entry"])


def _page(entry: Entry) -> str:
    return f"/schedule/{entry.name}"


ACTIONS: dict[str, Act] = {
    "/schedule/{entry}/pause": pause,
    "/schedule/{entry}/resume": resume,
    "/schedule/{entry}/fire": fire,
    "/dead/act": dead_acts.act,
    "/balancer/on": balance_acts.switch_on,
    "/balancer/off": balance_acts.switch_off,
    "/balancer/{entry}/hold": balance_acts.hold,
    "/balancer/{entry}/release": balance_acts.release,
}
"""By the address that a form is sent to."""
