"""Requeue or discard dead letters: one by its place, or the oldest that match a filter, a thousand at a time.

The page before has shown how many that are and the first of them. A letter that died after it was shown is not touched,
nor is one that died anew since then.

Not guaranteed: the latter of a letter that is queued again elsewhere, and dies anew, while the act runs. An act that
breaks off has moved what it had moved by then, and its row in the audit says how many those are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fleet import audit, wire
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
    asked, at = letters.wanted(desk, given), given.get("at", "")
    if "id" in given:
        place = _one(desk, given)
        places, subject = [place], f"{place.queue} {place.id[:80]}"
    else:
        places = _matching(desk, asked, given, at)
        subject = ", ".join(f"{name}={value}" for name, value in asked.given.items()) or "all queues"
    became: Counter[str] = Counter()
    with audit.noting(desk.broker, who=visitor.name, what=f"dead {what}", subject=subject, because=because) as note:
        note.before = f"{len(places):,} dead letters, the first {places[0].id[:80]}"
        for some in _moving(desk, what, places):
            became += some
            note.after = _told(what, len(places), became)
    return Done(link("/dead", at=letters.begins(asked, at), **asked.given), f"{note.after}.")


def _one(desk: Desk, given: Mapping[str, str]) -> Place:
    """The letter that a page has shown; raises `FleetError` where it is another death by now."""
    place = Place(given.get("queue", ""), letters.id_of(given["id"]))
    letter, died = letters.one(desk, *place), letters.instant(given.get("died", ""))
    if letter is not None and wire.to_ms(letter.died) != wire.to_ms(died):
        raise FleetError(
            f"{letter.id} died anew, at {letter.died:%Y-%m-%d %H:%M:%S} UTC; the page showed its death at "
            f"{died:%Y-%m-%d %H:%M:%S} UTC. Open it again, and look why."
        )
    return place


def _matching(desk: Desk, asked: letters.Wanted, given: Mapping[str, str], at: str) -> list[Place]:
    """The letters that match; raises `FleetError` where there is none."""
    found = letters.chosen(desk, asked, letters.instant(given.get("shown_at", "")), at)
    if not found.letters and found.next is not None:
        raise FleetError(
            f"None of the {letters.LOOKED_AT:,} dead letters that were looked at matches any more: somebody else was "
            f"faster, or they have moved up. Search for them again."
        )
    if not found.letters:
        raise FleetError("No dead letter matches any more; somebody else was faster.")
    return [letter.place for letter in found.letters]


def _moving(desk: Desk, what: str, places: Sequence[Place]) -> Iterator[Counter[str]]:
    """What became of the letters, as it comes."""
    if what == "requeue":
        yield from (Counter[str]([outcome]) for outcome in requeue(desk.broker, places, a_second=_A_SECOND))
    else:
        yield from (Counter[str](moved=dropped) for dropped in discard(desk.broker, places))


def _told(what: str, asked: int, became: Counter[str]) -> str:
    said = f"{became['moved']:,} of {asked:,} {DOES[what]}"
    said += f"; {became['unreadable']:,} cannot be read and stay" if became["unreadable"] else ""
    return f"{said}; {became['gone']:,} were gone already" if became["gone"] else said
