"""An entry's revisions: what it said from when on, as Redis keeps it.

    (unknown) --registered--> revision 1 --another one registered--> revision 2 --left out of a schedule--> "-" --> ...

A revision's slots are those after the instant it began, up to the one at which the next began. So a slot that had come
before an edit is the old revision's, whoever leads when it is judged, and no slot has two revisions. What a slot's
message is sent to, how it catches up and whether it may overlap is always the latest revision's word.

Which schedule is stored: that of the process which started last. A process registers its schedule once, when it starts,
so that one of an older release which takes office again does not turn it back. It registers again only where Redis
forgot, or where no process with the stored schedule has looked at it for `ORPHANED` (an older release that was started
again after the newer one, and is gone). Meanwhile a leader fires what is stored, also entries and actors that its own
release does not know, and leaves out those that the newer one left out.

Not guaranteed: a revision each for more than `REVISIONS_KEPT` edits of an entry within which none of its slots was
judged; the oldest that is kept then speaks for those before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fleet import wire
from fleet.declarations import ZERO, All, Entry
from fleet.slots import offset

REVISIONS_KEPT = 64
ORPHANED = timedelta(seconds=60)
ENDED = "-"


@dataclass(frozen=True)
class Revision:
    """What an entry says about its slots after `began`, in night time; `entry` is None where it had ended.

    The entry is due `offset` after its slot.
    """

    number: int
    began: datetime
    entry: Entry | None
    queue: str = ""
    offset: timedelta = ZERO


@dataclass(frozen=True)
class History:
    """An entry's revisions, oldest first, and the latest one that had not ended."""

    name: str
    revisions: tuple[Revision, ...]
    living: Revision


def spec(entry: Entry, queue: str) -> str:
    """What a revision of an entry says, in one line: all that decides which slots it has and what is sent for them."""
    return json.dumps(
        {
            "cron": entry.cron,
            "every": None if entry.every is None else wire.duration_ms(entry.every),
            "tz": entry.tz,
            "jitter": wire.duration_ms(entry.jitter),
            "expires": wire.duration_ms(entry.expires),
            "catch_up": entry.catch_up.most if isinstance(entry.catch_up, All) else entry.catch_up,
            "overlap": entry.overlap,
            "actor": entry.actor,
            "queue": queue,
        },
        sort_keys=True,
        separators=(",", ":"),
    )


def digest(specs: Iterable[tuple[str, str]]) -> str:
    """The same for two schedules that say the same."""
    return hashlib.sha256(json.dumps(sorted(specs)).encode()).hexdigest()[:32]


def history(name: str, lines: str) -> History | None:
    """Read an entry's revisions as Redis keeps them; None if it has ended and owes nothing.

    Raises `ValueError`, `KeyError`, `TypeError` or `DeclarationInvalid` if they cannot be read.
    """
    revisions = tuple(_revision(name, line) for line in lines.split("\n"))
    living = next((revision for revision in reversed(revisions) if revision.entry), None)
    return None if living is None else History(name, revisions, living)


def _revision(name: str, line: str) -> Revision:
    number, began, says = line.split(" ", 2)
    since = wire.from_ms(int(began))
    if says == ENDED:
        return Revision(int(number), since, None)
    told: dict[str, Any] = json.loads(says)
    entry = Entry(
        name,
        cron=told["cron"],
        every=None if told["every"] is None else timedelta(milliseconds=told["every"]),
        tz=told["tz"],
        jitter=timedelta(milliseconds=told["jitter"]),
        expires=timedelta(milliseconds=told["expires"]),
        catch_up=All(told["catch_up"]) if isinstance(told["catch_up"], int) else told["catch_up"],
        overlap=told["overlap"],
        actor=told["actor"],
        because="kept from when it was registered",
    )
    return Revision(int(number), since, entry, told["queue"], offset(entry))
