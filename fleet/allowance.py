"""How many chains of an elastic entry may run now, why, and what was decided before.

The leader's balancer writes an entry's allowance as a lease of 180 s (night), each minute. Whoever works reads it
before each chunk. A lease that lapsed means that nobody decides, and then the entry's cron slot stands, as a level that
every reader computes for itself: the cap from the slot to the day, else none (`fleet.window.level`). So a balancer that
died, was switched off or cannot see makes the night the one that was scheduled, and no worse.

A person may hold an entry until an instant, the deadline at the latest, or pause it (`fleet.by_hand`) until it is
resumed; each stands in a key of its own, read with the lease, so it holds whoever decides, and when nobody does. A hold
ends at its instant by its reader's clock, also where its key lapses later.

Not guaranteed: that no chain runs beyond its allowance: one that was lowered is heard at the end of a chunk. On
failure: while Redis does not answer the allowance is the level; the others raise what redis-py raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

import redis
from redis.client import Pipeline

from fleet import wire
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.errors import NotDeclared
from fleet.logs import get_logger
from fleet.window import level, window

log = get_logger(__name__)

LEASE = timedelta(seconds=180)  # night
DECISIONS_KEPT = 2_000  # an entry; a night has about sixty
_UNREADABLE = wire.from_ms(0)

Reason = Literal["floor", "hot", "free", "calm", "blind", "closed", "day", "held", "paused"]
"""Why an allowance is what it is.

    floor   the backlog would not be done by the deadline with less
    hot     people wait for their jobs to start: halved
    free    others need the processors (or the quota's places): cut to what they leave
    calm    nobody needs them: grows, or stands at what is there
    blind   nobody decides, or nobody sees: the cron slot's level
    closed  outside its window
    day     its day has begun: one chain at most
    held    a person holds it
    paused  a person paused it, and it is not resumed yet
"""


@dataclass(frozen=True)
class Allowance:
    """How many chains may run, and why. `leased_until` is None, and `fallback` true, where nobody decides.

    `backlog` is what the balancer counted; None where nobody did.
    """

    places: int
    reason: Reason
    leased_until: datetime | None
    fallback: bool
    backlog: int | None = None


@dataclass(frozen=True)
class Decision:
    """An allowance that was decided at an instant, under a leader's epoch; `text` says it to a person.

    `numbers` is what it was decided by: `before`, `backlog`, `cost` (seconds a row), `needs` (chains that the deadline
    needs), `wait` (seconds), `free`, `ended_early` (chunks), `finishes` (ISO 8601, or None); and `until` (ISO 8601) of
    a hold. Of epoch 0 is what a person's act left allowed (`fleet.balance_by_hand`): it has `until` of a hold, `level`
    where nobody decided so that the cron slot's level held, and `off`, true or false, where the balancer was switched.
    """

    at: datetime
    entry: str
    places: int
    reason: Reason
    text: str
    epoch: int
    numbers: dict[str, Any]

    @property
    def until(self) -> datetime | None:
        """Until when a hold stands where nothing follows; None of all else, and of a hold that cannot be read."""
        until = _instant(self.numbers.get("until"))
        return until if until > _UNREADABLE else None

    @property
    def endless(self) -> bool:
        """Whether it is a hold that cannot be read, which stands until something follows."""
        return "until" in self.numbers and self.until is None


@dataclass(frozen=True)
class Hold:
    """By whom an entry is held, since when, until when (night time), and why."""

    by: str
    at: datetime
    until: datetime
    because: str

    @property
    def told(self) -> str:
        """By whom, until when and why, in words."""
        until = f"{self.until:%H:%M} UTC" if self.until > _UNREADABLE else "it is released"
        return f"held by {self.by} until {until}: {self.because}"


@dataclass(frozen=True)
class Off:
    """By whom the balancer was switched off, when (night time), and why."""

    by: str
    at: datetime
    because: str


def allowance(broker: FleetBroker, entry: Entry, now: datetime) -> Allowance:
    """What an elastic entry may run at a night instant: a person's pause or hold, the lease, or the cron slot's level.

    Raises nothing of Redis's: while it does not answer, the level holds.
    """
    try:
        return allowances(broker, [entry], now)[0][1]
    except redis.RedisError as error:
        log.warning("allowance_unread", entry=entry.name, error=str(error))
        return read(entry, now, None, None)


def allowances(
    broker: FleetBroker, entries: Iterable[Entry], now: datetime, client: redis.Redis | None = None
) -> list[tuple[Entry, Allowance]]:
    """What each of these elastic entries may run; one round trip. Raises what redis-py raises."""
    elastic = list(entries)
    if not elastic:
        return []
    found = standing(broker, elastic, client)
    return [(entry, read(entry, now, *raw)) for entry, raw in zip(elastic, found, strict=True)]


def standing(
    broker: FleetBroker, entries: Sequence[Entry], client: redis.Redis | None = None
) -> list[tuple[bytes | None, bytes | None, bytes | None]]:
    """Lease, hold and pause of each of these entries, as `read` takes them. Raises what redis-py raises."""
    with (client or broker.client).pipeline(transaction=False) as pipe:
        ask(pipe, broker.namespace, entries)
        values, paused = pipe.execute()
    return list(zip(values[::2], values[1::2], paused, strict=True))


def leased(broker: FleetBroker, entries: Sequence[Entry]) -> set[str]:
    """The entries among these of which somebody decided within a lease. Raises what redis-py raises."""
    found = zip(entries, standing(broker, entries), strict=True) if entries else ()
    return {entry.name for entry, (lease, *_) in found if _decided(lease) is not None}


def ask(pipe: Pipeline, namespace: str, entries: Sequence[Entry]) -> None:
    """Have a pipeline read what `read` wants: two answers, leases and holds in turn, and pauses."""
    pipe.mget([key(namespace, entry.name) for entry in entries for key in (keys.allowance, keys.hold)])
    pipe.hmget(keys.paused(namespace), [entry.name for entry in entries])


def read(
    entry: Entry, now: datetime, lease: bytes | None, held: bytes | None, paused: bytes | None = None
) -> Allowance:
    """What is said of an entry in Redis, which lets lease and hold lapse by its own clock; a hold lasts no longer."""
    if paused is not None:
        return Allowance(0, "paused", None, fallback=False)
    if held is not None and not _over(_until(held), now):
        return Allowance(0, "held", _until(held), fallback=False)
    decided = _decided(lease)
    if decided is not None:
        return decided
    places = level(entry, now)
    return Allowance(places, "blind" if window(entry, now).holds(now) else "closed", None, fallback=True)


def decisions(broker: FleetBroker, entry: str, since: datetime) -> list[Decision]:
    """What was decided of an entry since a night instant, oldest first, and the last decision before it.

    In order of time, not as it was written down: a person's act goes by the clock of another host.
    """
    rows: Any = broker.client.xrange(keys.decisions(broker.namespace, entry))
    found = sorted(filter(None, (_decision(entry, row) for _, row in rows)), key=lambda one: one.at)
    before = sum(decision.at < since for decision in found)
    return found[max(0, before - 1) :]


def last_decisions(broker: FleetBroker, entry: str, most: int, client: redis.Redis | None = None) -> list[Decision]:
    """The last decisions of an entry, newest first, at most so many."""
    rows: Any = (client or broker.client).xrevrange(keys.decisions(broker.namespace, entry), count=most)
    return [decision for _, row in rows if (decision := _decision(entry, row)) is not None]


def holds(
    broker: FleetBroker, entries: Iterable[str], client: redis.Redis | None = None, now: datetime | None = None
) -> dict[str, Hold]:
    """Which of these entries persons hold at a night instant, by default this one."""
    names, at = list(entries), now or clock.now()
    if not names:
        return {}
    found: Any = (client or broker.client).mget([keys.hold(broker.namespace, name) for name in names])
    told = ((name, hold_of(raw)) for name, raw in zip(names, found, strict=True))
    return {name: held for name, held in told if held is not None and not _over(held.until, at)}


def switched_off(broker: FleetBroker, client: redis.Redis | None = None) -> Off | None:
    """Who has the balancer off, None if nobody."""
    raw: Any = (client or broker.client).get(keys.balance_off(broker.namespace))
    if raw is None:
        return None
    told = _json(raw)
    return Off(str(told.get("by", "?")), _instant(told.get("at")), str(told.get("because", raw[:200])))


def elastic_entry(entries: Iterable[Entry], name: str) -> Entry:
    """The elastic entry of this name, or `NotDeclared`."""
    known = [entry for entry in entries if entry.elastic is not None]
    for entry in known:
        if entry.name == name:
            return entry
    raise NotDeclared("elastic entry", name, (entry.name for entry in known))


def _decided(lease: bytes | None) -> Allowance | None:
    told = _json(lease)
    try:
        if not told or told["reason"] not in get_args(Reason):
            return None
        backlog = told.get("backlog")
        return Allowance(
            places=max(0, int(told["places"])),
            reason=told["reason"],
            leased_until=wire.from_ms(int(told["until"])),
            fallback=told["reason"] == "blind",
            backlog=backlog if isinstance(backlog, int) else None,
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _decision(entry: str, row: dict[bytes, bytes]) -> Decision | None:
    try:
        told = {name.decode(): value.decode() for name, value in row.items()}
        reason: Any = told["reason"]
        at, places, epoch = wire.from_ms(int(told["at"])), int(told["places"]), int(told["epoch"])
        return Decision(at, entry, places, reason, told["text"], epoch, json.loads(told["numbers"]))
    except (KeyError, ValueError, OverflowError):
        return None


def hold_of(raw: bytes | None) -> Hold | None:
    """A hold as it stands in Redis; None where none does."""
    if raw is None:
        return None
    told = _json(raw)
    return Hold(str(told.get("by", "?")), _instant(told.get("at")), _until(raw), str(told.get("because", "?")))


def _over(until: datetime, now: datetime) -> bool:
    """Whether a hold's instant has passed, though Redis keeps it; not of one that cannot be read: somebody made it."""
    return _UNREADABLE < until <= now


def _until(held: bytes) -> datetime:
    return _instant(_json(held).get("until"))


def _json(raw: bytes | None) -> dict[str, Any]:
    try:
        told = json.loads(raw or b"{}")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _instant(text: object) -> datetime:
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    except (ValueError, OverflowError):
        return _UNREADABLE
