"""Requeue or discard dead letters: one by its place, or the oldest that match a filter, a thousand at a time.

The page before has shown how many that are and the first of them. A letter that died after it was shown is not touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fleet import audit
from fleet.broker.dead import Place, discard, requeue
from fleet.console import letters
from fleet.console.desk import Desk
from fleet.console.reasons import Done, reason
from fleet.console.rendering import link
from fleet.console.sessions import Visitor
from fleet.errors import DeclarationInvalid, FleetError

_A_SECOND = 200.0
DOES = {"requeue": "queued again", "discard": "dropped for good"}


def act(desk: Desk, visitor: Visitor, given: Mapping[str, str]) -> Done:
    what, because = given.get("do", ""), reason(given)
    if what not in DOES:
        raise DeclarationInvalid(f"{what!r} is nothing that is done to dead letters; there is {', '.join(DOES)}.")
    asked = letters.wanted(desk, given)
    if "id" in given:
        place = Place(given.get("queue", ""), letters.id_of(given["id"]))
        places, subject = [place], f"{place.queue} {place.id[:80]}"
    else:
        places = [letter.place for letter in letters.chosen(desk, asked, letters.instant(given.get("shown_at", "")))]
        subject = ", ".join(f"{name}={value}" for name, value in asked.given.items()) or "all queues"
    if not places:
        raise FleetError("No dead letter matches any more; somebody else was faster.")
    became = _move(desk, what, places)
    said = _told(what, len(places), became)
    audit.note(
        desk.broker,
        who=visitor.name,
        what=f"dead {what}",
        subject=subject,
        because=because,
        before=f"{len(places):,} dead letters, the first {places[0].id[:80]}",
        after=said,
    )
    return Done(link("/dead", **asked.given), said)


def _move(desk: Desk, what: str, places: Sequence[Place]) -> Counter[str]:
    if what == "requeue":
        return Counter(requeue(desk.broker, places, a_second=_A_SECOND))
    return Counter({"moved": sum(discard(desk.broker, places))})


def _told(what: str, asked: int, became: Counter[str]) -> str:
    said = f"{became['moved']:,} of {asked:,} {DOES[what]}"
    said += f"; {became['unreadable']:,} cannot be read and stay" if became["unreadable"] else ""
    return f"{said}; {became['gone']:,} were gone already." if became["gone"] else f"{said}."
