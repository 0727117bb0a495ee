"""What elastic entries say of the rest of an application, judged without any server: part of `fleet check`.

Not guaranteed: that a backlog's function counts what the entry's chunks take, or has an index for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from fleet.app import App, backlog_of
from fleet.clock import clock
from fleet.declarations import Elastic, Entry
from fleet.errors import DeclarationInvalid, NotDeclared
from fleet.slots import slots_after
from fleet.window import elastic_of, window

_SLOTS_LOOKED_AT = 40  # more than a month of nights
_A_NIGHT = timedelta(hours=25)  # one in which the clocks go back


def elastic_findings(app: App) -> Iterator[str]:
    """A line for each contradiction."""
    for entry in app.schedule:
        if entry.elastic is not None:
            yield from _backlog(entry)
            yield from _slot(entry, entry.elastic)
            yield from _quota(app, entry, entry.elastic)
    yield from _caps(app)


def _backlog(entry: Entry) -> Iterator[str]:
    try:
        backlog_of(entry)
    except DeclarationInvalid as error:
        yield str(error)
    except Exception as error:  # whatever the application's module raises at its import
        yield f"Entry({entry.name!r}): the module of its backlog cannot be imported: {error!r}."


def _slot(entry: Entry, elastic: Elastic) -> Iterator[str]:
    if entry.cron is None:
        yield f"Entry {entry.name!r}: an elastic entry has one slot a night: give cron= instead of every={entry.every}."
        return
    try:
        slots = list(islice(slots_after(entry, clock.now()), _SLOTS_LOOKED_AT))
    except DeclarationInvalid:
        return  # said of every entry
    zone = ZoneInfo(entry.tz)
    shown = Counter(slot.astimezone(zone).time() for slot in slots)
    # In the night of a change of clocks a slot may be an hour beside its time.
    if shown and shown[elastic.slot] < len(slots) - 1:
        found = ", ".join(sorted(f"{time:%H:%M}" for time in shown))
        yield (
            f"Entry {entry.name!r}: its cron {entry.cron!r} comes at {found}, and its elastic slot is "
            f"{elastic.slot:%H:%M}. The slot is the cron's own minute, once a night: make them the same."
        )
    gap = max(((then, slot) for then, slot in pairwise(slots)), key=lambda pair: pair[1] - pair[0], default=None)
    if gap is not None and gap[1] - gap[0] > _A_NIGHT:
        then, slot = (instant.astimezone(zone) for instant in gap)
        yield (
            f"Entry {entry.name!r}: its cron {entry.cron!r} leaves nights out, as from {then:%a %Y-%m-%d} to "
            f"{slot:%a %Y-%m-%d}, and its chains run in every night's window all the same. Give a cron of every day, "
            f"and let {elastic.backlog} count nothing in a night without work."
        )
    night = window(entry, clock.now())
    if night.slot + entry.expires > night.closes:
        yield (
            f"Entry {entry.name!r}: expires={entry.expires} lets its slot's message start after its night has closed, "
            f"at {night.closes.astimezone(zone):%H:%M}, when it begins nothing: give {night.closes - night.slot} or "
            f"less."
        )


def _caps(app: App) -> Iterator[str]:
    """Of each lane: what a backlog needs is reckoned by a process, or thread, a chain (`beat.balancer.needs`)."""
    chains: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in app.schedule:
        actor = app.actors.get(entry.actor) if entry.elastic is not None else None
        lane = None if actor is None else app.lane_of(actor.queue_name)
        if lane is not None:  # else said of the actor
            chains[lane.name].append(entry)
    for lane in app.lanes:
        at_once = lane.processes * lane.threads
        caps = {entry.name: elastic_of(entry).cap for entry in chains[lane.name]}
        if sum(caps.values()) > at_once:
            named = " and ".join(f"{name!r} cap={cap}" for name, cap in caps.items())
            yield (
                f"Lane {lane.name!r}: of {named} up to {sum(caps.values())} chains run, which is more than it runs at "
                f"once ({lane.processes} processes of {lane.threads} threads): more would only wait, and the balancer "
                f"reckons that each runs. Give caps of {at_once} or less in all, or the lane more."
            )


def _quota(app: App, entry: Entry, elastic: Elastic) -> Iterator[str]:
    names = [quota.name for quota in app.quotas]
    if elastic.quota is not None and elastic.quota not in names:
        yield f"Entry {entry.name!r}: {NotDeclared('quota', elastic.quota, names)} Quotas stand in config/quotas.py."
