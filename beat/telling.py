"""Says an allowance to a person, in one line: why it is what it is, and when the backlog is done at this pace."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from beat.balancer import BalancerRules, Places, Processors, Reading, needs
from fleet.allowance import Allowance
from fleet.declarations import Entry


def told(entry: Entry, granted: Allowance, before: int, reading: Reading, rules: BalancerRules) -> str:
    """One line; times are the entry's own."""
    parts = [f"{_verb(granted, before)} {granted.places} of {reading.cap}: {_why(entry, granted, reading, rules)}"]
    if granted.reason == "hot" and granted.places < reading.cap:
        parts.append(f"grows again after {rules.calm_ticks} calm minutes")
    if granted.reason not in ("closed", "blind"):
        parts.append(_outlook(entry, granted, reading))
    return "; ".join(parts)


def numbers(granted: Allowance, before: int, reading: Reading, rules: BalancerRules) -> dict[str, Any]:
    """What an allowance was decided by."""
    done = finishes(granted, reading)
    return {
        "before": before,
        "cap": reading.cap,
        "backlog": reading.backlog,
        "cost": round(reading.cost.total_seconds(), 3),
        "needs": needs(reading, rules),
        "wait": round(reading.wait.total_seconds(), 3),
        "free": round(_free(reading), 2),
        "deadline": reading.window.deadline.isoformat(),
        "finishes": None if done is None else done.isoformat(),
    }


def finishes(granted: Allowance, reading: Reading) -> datetime | None:
    """When the backlog is done if nothing changes; None if never, or if what a row costs is not known yet."""
    if reading.backlog == 0:
        return reading.now
    if not granted.places or not reading.cost:
        return None
    left = reading.backlog * reading.cost / granted.places
    return reading.now + left if left < timedelta(days=7) else None


def _verb(granted: Allowance, before: int) -> str:
    if granted.places < before or granted.reason == "hot":
        return "held at"
    return "grown to" if granted.places > before else "at"


def _why(entry: Entry, granted: Allowance, reading: Reading, rules: BalancerRules) -> str:
    night, room = reading.window, reading.room
    match granted.reason:
        case "hot":
            return f"people waited {reading.wait.total_seconds():.1f} s for their jobs to start"
        case "free" if isinstance(room, Places):
            others = f"; other batch work takes {room.others}" if room.others else ""
            return f"people hold {room.people} of {room.all} places, and {room.kept} are kept for them{others}"
        case "free" if isinstance(room, Processors):
            given = f", and other elastic entries were given {room.granted:.1f}" if room.granted else ""
            return f"other lanes use {room.others:.1f} of {room.cores:g} cores{given}"
        case "floor" if not reading.cost:
            return "what a row costs is not known, and one chain finds out"
        case "floor":
            by = _clock(entry, night.deadline)
            return f"{reading.backlog:,} rows of {reading.cost.total_seconds():.2g} s are not done by {by} with fewer"
        case "day":
            return f"the day began at {_clock(entry, night.day)}"
        case "closed":
            return f"opens at {_clock(entry, night.opens)}"
        case "blind":
            return (
                f"the fleet cannot be seen, so the cron slot stands: all from {_clock(entry, night.slot)} to "
                f"{_clock(entry, min(night.day, night.closes))}"
            )
        case _:
            return "there is room, and nobody waits"


def _outlook(entry: Entry, granted: Allowance, reading: Reading) -> str:
    if reading.backlog == 0:
        return "nothing is left"
    done, deadline = finishes(granted, reading), _clock(entry, reading.window.deadline)
    if done is None:
        return f"{reading.backlog:,} rows are left, no end in sight at this pace, deadline {deadline}"
    late = "after the deadline" if done > reading.window.deadline else "deadline"
    return f"{reading.backlog:,} rows are left, finishes {_clock(entry, done)} at this pace, {late} {deadline}"


def _free(reading: Reading) -> float:
    if isinstance(reading.room, Processors):
        return reading.room.cores - reading.room.reserve - reading.room.others - reading.room.granted
    return reading.room.all - reading.room.kept - reading.room.people - reading.room.others


def _clock(entry: Entry, instant: datetime) -> str:
    return f"{instant.astimezone(ZoneInfo(entry.tz)):%H:%M}"
