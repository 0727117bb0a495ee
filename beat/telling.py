"""Says an allowance to a person, in one line: why it is what it is, and when the backlog is done at this pace.

Not guaranteed: that end. It goes by what a row cost lately, and is left out where that tells nothing: while it is not
known, and while chunks end early since nobody answers or no place is theirs. Nor that on a busy machine: a wait for a
core is none of a row's cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from beat.balancer import BalancerRules, Places, Processors, Reading, State, needs
from fleet.allowance import Allowance
from fleet.declarations import Entry


def told(entry: Entry, granted: Allowance, before: int, reading: Reading, rules: BalancerRules, after: State) -> str:
    """One line; `after` is what the rule remembers of this minute. Times are the entry's own."""
    parts = [f"{_verb(granted, before)} {granted.places} of {reading.cap}: {_why(entry, granted, reading, after)}"]
    if granted.places < reading.cap:
        parts += _when_it_grows(granted, rules, after)
    if granted.reason not in ("closed", "blind"):
        if reading.ended_early and reading.backlog:
            parts.append("its chunks end early: nobody answers, or people have the places")
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
        "ended_early": reading.ended_early,
        "deadline": reading.window.deadline.isoformat(),
        "finishes": None if done is None else done.isoformat(),
        **({"until": granted.leased_until.isoformat()} if granted.reason == "held" and granted.leased_until else {}),
    }


def finishes(granted: Allowance, reading: Reading) -> datetime | None:
    """When the backlog is done if nothing changes; None if never, or if what a row costs now is not known."""
    if reading.backlog == 0:
        return reading.now
    if not granted.places or not reading.cost or reading.ended_early:
        return None
    left = reading.backlog * reading.cost / granted.places
    return reading.now + left if left < timedelta(days=7) else None


def _verb(granted: Allowance, before: int) -> str:
    if granted.places < before or granted.reason == "hot":
        return "held at"
    return "grown to" if granted.places > before else "at"


def _why(entry: Entry, granted: Allowance, reading: Reading, after: State) -> str:
    night, room = reading.window, reading.room
    match granted.reason:
        case "hot":
            return f"people waited {reading.wait.total_seconds():.1f} s for their jobs to start"
        case "free" if isinstance(room, Places):
            return _no_room(room, granted.places, after)
        case "free" if isinstance(room, Processors):
            given = f", and other elastic entries were given {room.granted:.1f}" if room.granted else ""
            return f"other lanes use {room.others:.1f} of {room.cores:g} cores{given}"
        case "floor" if not reading.cost:
            return "one chain learns what a row costs"
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
        case "calm" if after.calm < 0 or (granted.places < reading.cap and not after.calm):
            return _no_room(room, granted.places, after)
        case _:
            return "there is room, and nobody waits"


def _no_room(room: Processors | Places, places: int, after: State) -> str:
    """What has the room that one chain more would need; of others what they were taken to use, over minutes."""
    if isinstance(room, Places):
        return f"people held {after.others:.1f} of {room.all} places lately, and {room.kept} are kept for them"
    parts = [
        f"of {room.cores:g} its chains may take {places * room.a_chain:.1f}",
        f"other lanes used {after.others:.1f} lately",
    ]
    if room.granted:
        parts.append(f"other elastic entries were given {room.granted:.1f}")
    if room.reserve:
        parts.append(f"{room.reserve:g} kept free")
    return f"no core is free for another: {', '.join(parts)}"


def _when_it_grows(granted: Allowance, rules: BalancerRules, after: State) -> Iterator[str]:
    if granted.reason == "hot":
        yield f"grows again after {rules.calm_ticks} calm minutes"
    elif granted.reason == "calm" and 0 < after.calm < rules.calm_ticks:
        left = rules.calm_ticks - after.calm
        yield f"grows after {left} calm minute{'s' if left > 1 else ''} more"


def _outlook(entry: Entry, granted: Allowance, reading: Reading) -> str:
    if reading.backlog == 0:
        return "nothing is left"
    night, done, deadline = reading.window, finishes(granted, reading), _clock(entry, reading.window.deadline)
    if done is not None and done <= night.closes:
        late = "after the deadline" if done > night.deadline else "deadline"
        end = f"finishes {_clock(entry, done)} at this pace, {late}"
    elif done is not None:
        end = f"not done this night: {(done - reading.now) / timedelta(hours=1):,.1f} hours at this pace, deadline"
    elif reading.ended_early:
        end = "deadline"
    elif granted.places and not reading.cost:
        end = "what one costs is not known yet, deadline"
    else:
        end = "no end in sight at this pace, deadline"
    return f"{reading.backlog:,} rows are left, {end} {deadline}"


def _free(reading: Reading) -> float:
    if isinstance(reading.room, Processors):
        return reading.room.cores - reading.room.reserve - reading.room.others - reading.room.granted
    return reading.room.all - reading.room.kept - reading.room.people


def _clock(entry: Entry, instant: datetime) -> str:
    return f"{instant.astimezone(ZoneInfo(entry.tz)):%H:%M}"
