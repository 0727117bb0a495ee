"""What a person does to elastic work: hold an entry, release it, switch the balancer off and on.

Each is written down beside the balancer's decisions in the step that does it, as what is allowed by it, so that the
night says what ran and why also where nobody decides. It is of epoch 0: no leader decided it.

Not guaranteed: that what is written down as allowed was, where a lease lapsed or another act came in that moment; nor
that anything is, where an entry's decisions are a key of another type. On failure: what redis-py raises; of an act
whose reply was lost nobody knows whether it was done.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import redis
from redis.client import Pipeline

from fleet import wire
from fleet.allowance import DECISIONS_KEPT, Allowance, Hold, Off, hold_of, read, standing, switched_off
from fleet.broker import FleetBroker, keys
from fleet.by_hand import pause_of
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.errors import DeclarationInvalid
from fleet.window import window

_LEAST = timedelta(milliseconds=50)


def hold(broker: FleetBroker, entry: Entry, until: datetime, *, by: str, because: str) -> Hold | None:
    """Let no chain of an entry begin another chunk until an instant; returns the hold that stood before.

    Raises `DeclarationInvalid` for an instant that has passed or lies behind `Window.holdable_until`.
    """
    now, ns = clock.now(), broker.namespace
    night = window(entry, now)
    last = night.holdable_until(now)
    what = "deadline" if last == night.deadline else "night's end"
    if not now < until <= last:
        raise DeclarationInvalid(
            f"{entry.name} can be held from now ({now:%H:%M} UTC) to its {what}, {last:%Y-%m-%d %H:%M} UTC "
            f"at the latest; not until {until:%Y-%m-%d %H:%M}: what is left by then could not be done any more."
        )
    told = json.dumps({"by": by, "at": now.isoformat(), "until": until.isoformat(), "because": because})
    lasts = wire.duration_ms(max(clock.to_real(until - now), _LEAST))
    takes_notes = _takes_notes(broker, entry)
    with broker.client.pipeline(transaction=True) as pipe:
        pipe.set(keys.hold(ns, entry.name), told, px=lasts, get=True)
        if takes_notes:
            _note_hold(pipe, ns, entry, now, told.encode())
        before: Any = pipe.execute()[0]
    return hold_of(before)


def release(broker: FleetBroker, entry: Entry, *, by: str, because: str) -> Hold | None:
    """End a person's hold on an entry; returns it, None if there was none."""
    now, ns = clock.now(), broker.namespace
    [(lease, held, paused)] = standing(broker, [entry])
    if held is None:
        return None
    takes_notes = _takes_notes(broker, entry)
    with broker.client.pipeline(transaction=True) as pipe:
        pipe.getdel(keys.hold(ns, entry.name))
        if takes_notes:
            _note(pipe, ns, entry, now, read(entry, now, lease, None, paused), f"released by {by}: {because}")
        before: Any = pipe.execute()[0]
    return hold_of(before)


def switch(broker: FleetBroker, on: bool, entries: Iterable[Entry], *, by: str, because: str) -> Off | None:
    """Have the balancer decide, or not: then every entry is at its cron slot's level. Returns how it was off before."""
    before, now, ns, elastic = switched_off(broker), clock.now(), broker.namespace, list(entries)
    found = standing(broker, elastic) if elastic else []
    noted = {entry.name for entry in elastic if (not on or before is not None) and _takes_notes(broker, entry)}
    with broker.client.pipeline(transaction=True) as pipe:
        if on:
            pipe.delete(keys.balance_off(ns))
        else:
            pipe.set(keys.balance_off(ns), json.dumps({"by": by, "at": now.isoformat(), "because": because}))
        for entry, (_, held, paused) in zip(elastic, found, strict=True):
            if not on:
                pipe.delete(keys.allowance(ns, entry.name))
            if entry.name in noted:
                text = f"the balancer was switched {'on' if on else 'off'} by {by}: {because}"
                _note(pipe, ns, entry, now, read(entry, now, None, None), text, off=not on)
                if paused is not None:
                    _note(pipe, ns, entry, now, read(entry, now, None, None, paused), pause_of(paused).told)
                _note_hold(pipe, ns, entry, now, held)
        pipe.execute()
    return before


def _takes_notes(broker: FleetBroker, entry: Entry) -> bool:
    """Whether an entry's decisions are a stream, or none yet: of a step that failed at its note the rest was done."""
    try:
        broker.client.xlen(keys.decisions(broker.namespace, entry.name))
    except redis.ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise
        return False
    return True


def _note_hold(pipe: Pipeline, namespace: str, entry: Entry, now: datetime, raw: bytes | None) -> None:
    """Write down that a hold stands, also behind what was switched meanwhile: it holds whoever decides."""
    held, granted = hold_of(raw), read(entry, now, None, raw)
    if held is not None and granted.reason == "held":
        _note(pipe, namespace, entry, now, granted, held.told, until=held.until.isoformat())


def _note(
    pipe: Pipeline, namespace: str, entry: Entry, now: datetime, granted: Allowance, text: str, **numbers: Any
) -> None:
    if granted.fallback and granted.leased_until is None:
        text, numbers = f"{text}; nobody decides, so the cron slot's level holds", {**numbers, "level": True}
    row: dict[Any, Any] = {"at": wire.to_ms(now), "places": granted.places, "reason": granted.reason}
    row |= {"text": text, "epoch": 0, "numbers": json.dumps(numbers)}
    pipe.xadd(keys.decisions(namespace, entry.name), row, maxlen=DECISIONS_KEPT, approximate=True)
