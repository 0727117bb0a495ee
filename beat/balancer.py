"""How many chains of an elastic entry may run: a pure function of what was read, a small state, and its rules.

Work that waits for processors gets what the other lanes leave of them: one chain more after some calm minutes, half as
many at once when people wait for their jobs to start, and never fewer than the backlog needs to be done by its
deadline. Work that waits for a shared quota (a model's places) is admitted likewise, by what people leave of that, less
a reserve. From its cron slot on one chain runs whoever waits, while nobody knows what a row costs. The rule was chosen
among twelve in a simulator, and is tried there as it stands here (docs/decisions/0015).

Who cannot see does not decide: when the reading is old, or work is in flight and nothing that is counted has moved for
some minutes (a probe that tells old figures with fresh stamps), the allowance is the cron slot's level.

Not guaranteed: that the backlog is done by the deadline; with the cap it may need more than there is. Nothing here
reads a clock, or keeps anything.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil

from fleet.allowance import LEASE, Allowance, Reason
from fleet.window import Window

_LEFT_LEAST = timedelta(seconds=60)  # behind the deadline what is left is to be done at once
_ROUNDING = 0.05  # a need of 2.04 chains is one of two
_REAL_NOISE = timedelta(milliseconds=50)


@dataclass(frozen=True)
class BalancerRules:
    """The parameters of the rule; durations are night time.

    `cores` is what all hosts of the elastic lanes have; None for this machine's. Why each value is what it is stands
    beside it in config/thresholds.py.
    """

    cores: float | None = None
    hot: timedelta = timedelta(seconds=1)  # a start that people wait for longer than this halves
    calm_ticks: int = 3  # minutes without heat, and with room, before one chain more
    short_ticks: int = 10  # minutes in which a chain lacks its place, after which there is one fewer
    slack: float = 0.75  # cores or places that one chain more needs; what is missing by as much (places: twice) cuts
    reserve: float = 0.5  # cores that a lane leaves free which does not run at nice 15 or more
    smoothing: float = 0.5  # the share of a new reading in the average of what others use
    safety: float = 1.25  # how much more than it measured a backlog may cost
    day_chains: int = 1  # at most, from the day on
    stale: timedelta = timedelta(seconds=180)  # an older reading is none
    frozen_ticks: int = (
        5  # minutes in which nothing moves while work is in flight, after which readings are not believed
    )

    def at_rate(self, rate: float) -> BalancerRules:
        """The rules of a night that is played so much faster: a wait that the machine itself makes is no heat."""
        return replace(self, hot=max(self.hot, _REAL_NOISE * rate))


@dataclass(frozen=True)
class Processors:
    """What CPU-bound work is admitted by: cores there are, cores that other lanes use, cores to be left free.

    `granted` is what other elastic entries may take by their allowances: known, so it is not smoothed. `a_chain` is
    what one chain of this entry uses.
    """

    cores: float
    others: float
    reserve: float
    granted: float = 0.0
    a_chain: float = 1.0


@dataclass(frozen=True)
class Places:
    """What quota-bound work is admitted by: the quota's places, those kept for people, those that people hold."""

    all: int
    kept: int
    people: int


@dataclass(frozen=True)
class Reading:
    """What is known of an entry at a minute of its night.

    `taken` is when the fleet was read; `wait` the worst start that people waited for in the last three minutes; `cost`
    what a row takes a chain (zero: not known), and `backlog` how many rows are left; `counters` is the same again if
    nothing moved. `ended_early` counts chunks since the minute before that ended since nobody answers, or people have
    the places: told, and not decided by.
    """

    now: datetime
    taken: datetime
    window: Window
    cap: int
    backlog: int
    cost: timedelta
    wait: timedelta
    in_flight: bool
    counters: Hashable
    room: Processors | Places
    ended_early: int = 0


@dataclass(frozen=True)
class State:
    """What the rule remembers of the minute before; a fresh one is the most cautious."""

    places: int = 0
    calm: int = 0
    others: float = 0.0
    same: int = 0
    counters: Hashable = None


def decide(reading: Reading, state: State, rules: BalancerRules) -> tuple[Allowance, State]:
    """The allowance of an entry from now on, and what to remember for the next minute."""
    now, night = reading.now, reading.window
    if not night.holds(now):
        return _allowed(now, 0, "closed"), State()
    same = state.same + 1 if reading.in_flight and reading.counters == state.counters else 0
    state = replace(state, same=same, counters=reading.counters)
    if now - reading.taken > rules.stale or same >= rules.frozen_ticks:
        level = night.level(reading.cap, now)
        return Allowance(level, "blind", now + LEASE, fallback=True), replace(state, places=level)
    hot = reading.wait > rules.hot
    if isinstance(reading.room, Processors):
        places, reason, state = _by_processors(reading.room, hot, state, rules)
    else:
        places, reason, state = _by_places(reading.room, hot, state, rules)
    if now >= night.day:
        if places > rules.day_chains:
            places, reason = rules.day_chains, "day"
    elif places < (floor := min(reading.cap, needs(reading, rules))):
        places, reason = floor, "floor"
    places = min(reading.cap, places)
    return _allowed(now, places, reason), replace(state, places=places)


def needs(reading: Reading, rules: BalancerRules) -> int:
    """How many chains the backlog needs from now on to be done by the deadline.

    While what a row costs is not known, one from the cron slot on, when a schedule without a balancer would run it too:
    nobody learns it but by running.
    """
    if not reading.cost:
        return int(reading.backlog > 0 and reading.now >= reading.window.slot)
    left = max(_LEFT_LEAST, reading.window.deadline - reading.now)
    return max(0, ceil(reading.backlog * reading.cost * rules.safety / left - _ROUNDING))


def _by_processors(room: Processors, hot: bool, state: State, rules: BalancerRules) -> tuple[int, Reason, State]:
    others = state.others + rules.smoothing * (room.others - state.others)
    free = room.cores - room.reserve - room.granted - others
    mine = state.places * room.a_chain
    calm = state.calm + 1 if not hot and free >= mine + rules.slack * room.a_chain else 0
    state = replace(state, others=others, calm=calm)
    if hot:
        return state.places // 2, "hot", state
    if free < mine - rules.slack:
        return max(0, int((free + 1 - rules.slack) / room.a_chain)), "free", state
    return state.places + (calm >= rules.calm_ticks), "calm", state


def _by_places(room: Places, hot: bool, state: State, rules: BalancerRules) -> tuple[int, Reason, State]:
    """By what people held lately: they come and go within the minute, and the quota itself turns batch work away.

    So what a chain lacks cuts at once where it is much, and else when it has lacked it for minutes (`calm` below 0).
    """
    others = state.others + rules.smoothing * (room.people - state.others)
    free = max(0.0, room.all - room.kept - others)
    calm = 0
    if not hot and free >= state.places + rules.slack:
        calm = max(0, state.calm) + 1
    elif not hot and free <= state.places - rules.slack:
        calm = min(0, state.calm) - 1
    state = replace(state, others=others, calm=calm)
    if hot:
        return state.places // 2, "hot", state
    if free < state.places - 2 * rules.slack or calm <= -rules.short_ticks:
        return max(0, int(free + 1 - rules.slack)), "free", state
    return state.places + (calm >= rules.calm_ticks), "calm", state


def _allowed(now: datetime, places: int, reason: Reason) -> Allowance:
    return Allowance(places, reason, now + LEASE, fallback=False)
