"""Which dead letters a page is about: a filter from an address, a page of what matches, and what an act would touch.

A filter on what stands in a letter has to read each; so many are looked at a request, and the page says where to go on.
A list and an act with such a filter begin at the same place: what the one has found the other finds.

Not guaranteed: that a place is the same letter later; as many as were taken away in front of it are passed over.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from fleet import wire
from fleet.broker.dead import LONGEST_EXCEPTION, PAGE, DeadLetter, Filter, Place, count, read, scan
from fleet.clock import clock
from fleet.console.desk import Desk
from fleet.errors import DeclarationInvalid, NotDeclared
from fleet.hours import hours
from fleet.known import Known, knowing
from fleet.personal import texts_in
from fleet.safe_args import arguments_of
from fleet.scrubbing import scrub

SHOWN = 50
MOST = 1_000  # letters an act touches at a time
_IN_A_LIST = 120  # signs of an exception
_HALF = 120  # signs at the end of one that was cut, where what is personal may be cut in half and so not be seen to be
LOOKED_AT = 2_000  # letters that are read for a page, where the filter needs that
FIELDS = ("queue", "actor", "reason", "older", "newer", "argument")


@dataclass(frozen=True)
class Wanted:
    """What was asked for: the fields as they were given, and what they mean."""

    given: Mapping[str, str]
    queues: tuple[str, ...]
    which: Filter


@dataclass(frozen=True)
class Found:
    """Letters that match, and where to go on: None where nothing is left to be looked at."""

    letters: Sequence[DeadLetter]
    next: str | None


def wanted(desk: Desk, given: Mapping[str, str]) -> Wanted:
    """The filter of an address or a form; raises `NotDeclared`, `DeclarationInvalid`."""
    told = {name: given[name].strip() for name in FIELDS if given.get(name, "").strip()}
    queue = told.get("queue")
    if queue is not None and queue not in desk.queues:
        raise NotDeclared("queue", queue, desk.queues)
    which = Filter(
        told.get("actor"),
        told.get("reason"),
        hours("older", told["older"]) if "older" in told else None,
        hours("newer", told["newer"]) if "newer" in told else None,
        told.get("argument"),
    )
    return Wanted(told, tuple(desk.queues if queue is None else [queue]), which)


def page(desk: Desk, asked: Wanted, place: str) -> Found:
    """The next letters from a place on (`queue:number`, or nothing: from the first), oldest first."""
    return _search(desk, asked, asked.which, _place(asked, place), SHOWN)


def total(desk: Desk, asked: Wanted) -> int | None:
    """How many letters match in all, None where that is not known without reading each."""
    return count(desk.broker, asked.queues, asked.which)


def begins(asked: Wanted, place: str) -> str:
    """Where an act begins that a list at a place led to: there where bodies are read, else at the first letter."""
    return place if asked.which.reads_bodies else ""


def chosen(desk: Desk, asked: Wanted, shown_at: datetime, place: str) -> Found:
    """The letters that an act touches: the oldest from a place on, none that died after the act was shown."""
    age = max(timedelta(0), clock.real_now() - shown_at)
    older = age if asked.which.older_than is None else max(age, asked.which.older_than)
    which, start = replace(asked.which, older_than=older), _place(asked, begins(asked, place))
    found = _search(desk, asked, which, start, MOST)
    if len(found.letters) > MOST:  # once these are gone, the others stand from the same place on
        return Found(found.letters[:MOST], _written(start))
    return found


def _search(desk: Desk, asked: Wanted, which: Filter, here: tuple[str, int] | None, most: int) -> Found:
    """As many as are wanted, or up to a page more; where bodies are read, of the next so many letters."""
    found: list[DeadLetter] = []
    looked = 0
    while here is not None and len(found) < most and looked < LOOKED_AT:
        more = PAGE if which.reads_bodies else min(PAGE, most - len(found))
        letters, read_now, at = scan(desk.broker, here[0], which, start=here[1], most=more)
        looked += read_now
        found += letters
        here = (here[0], at) if at is not None else _after(asked, here[0])
    return Found(found, _written(here))


def one(desk: Desk, queue: str, id: str) -> DeadLetter | None:
    """The letter of a queue with this id in Redis; None if it is gone."""
    if queue not in desk.queues:
        raise NotDeclared("queue", queue, desk.queues)
    return next(read(desk.broker, [Place(queue, id)]), None)


def address(id: str) -> str:
    """An id as a part of an address: it may hold any bytes."""
    return base64.urlsafe_b64encode(id.encode(errors="surrogateescape")).decode().rstrip("=")


def id_of(address: str) -> str:
    """The id that an address stands for; raises `DeclarationInvalid`."""
    try:
        raw = base64.b64decode(address + "=" * (-len(address) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise DeclarationInvalid(f"{address!r} is no address of a dead letter; open it from their list.") from None
    return raw.decode(errors="surrogateescape")


@dataclass(frozen=True)
class Shown:
    """A letter's arguments as a page may show them, and what is personal in its texts besides."""

    arguments: list[tuple[str, str]]
    known: Known | None


def shown(desk: Desk, letter: DeadLetter) -> Shown:
    """What its actor lists as safe is shown (`safe_args`), of anything else what it is."""
    message = letter.message
    if message is None:
        return Shown([], None)
    actor = desk.app.actors.get(message.actor_name)
    given = [*((str(number), value) for number, value in enumerate(message.args, 1)), *message.kwargs.items()]
    hidden = [(name, _kind(value)) for name, value in given]
    if actor is None:
        return Shown(hidden, knowing(texts_in([message.args, message.kwargs])))
    told = arguments_of(actor, message)
    if not told.safe and not told.unsafe_names:  # they do not fit it
        return Shown(hidden, knowing(told.unsafe_texts))
    bound = inspect.signature(actor.fn).bind_partial(*message.args, **message.kwargs).arguments
    shown = [(name, str(value) if name in told.safe else _kind(value)) for name, value in bound.items()]
    return Shown(shown, knowing(told.unsafe_texts))


def exception_of(letter: DeadLetter, known: Known | None) -> str:
    """Its exception without what is personal."""
    text = scrub(letter.exception, known)
    return f"{text[:-_HALF]} … [cut]" if len(letter.exception) >= LONGEST_EXCEPTION else text


def listed(desk: Desk, found: Sequence[DeadLetter]) -> list[tuple[DeadLetter, str]]:
    """Letters with as much of their exceptions as a list has room for."""
    return [(one, exception_of(one, shown(desk, one).known)[:_IN_A_LIST]) for one in found]


def _kind(value: Any) -> str:
    size = f", {len(value):,} long" if isinstance(value, str | list | dict | tuple) else ""
    return f"({type(value).__name__}{size})"


def instant(written: str) -> datetime:
    """When a form was shown, from its milliseconds; raises `DeclarationInvalid`."""
    try:
        return wire.from_ms(int(written))
    except (ValueError, OverflowError):
        raise DeclarationInvalid(f"{written!r} is no instant; open the page again.") from None


def _place(asked: Wanted, written: str) -> tuple[str, int] | None:
    queue, _, number = written.rpartition(":")
    if not asked.queues:
        return None
    if queue in asked.queues and number.isdecimal() and len(number) < 9:
        return queue, int(number)
    return asked.queues[0], 0


def _written(place: tuple[str, int] | None) -> str | None:
    return None if place is None else f"{place[0]}:{place[1]}"


def _after(asked: Wanted, queue: str) -> tuple[str, int] | None:
    later = asked.queues[asked.queues.index(queue) + 1 :]
    return (later[0], 0) if later else None
