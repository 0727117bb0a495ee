"""What is wrong in a reading: one finding for each figure that is over its limit, in words for whoever is paged.

Ages and lags matter more than depth: a deep queue that drains is none, an old message on a shallow one is. Any dead
letter is one. Pure: what is judged was read before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

from fleet.alerts import Finding, Rule
from fleet.declarations import ZERO, Lane
from fleet.ledger import LedgerLine
from fleet.probe import QueueReading
from fleet.readings import STALE_AFTER, ActorReading, Readings
from fleet.thresholds import Thresholds
from fleet.workers.presence import Report

_MINUTE = timedelta(minutes=1)
UNSERVED_AFTER = 2 * _MINUTE  # night time: a deploy's gap
_ROLE_FORGOTTEN = timedelta(days=1)
_TOP = 3

RULES: Mapping[str, Rule] = {
    "queue_old": Rule(ZERO, 5 * _MINUTE),
    "queue_lag": Rule(ZERO, 5 * _MINUTE),
    "queue_deep": Rule(ZERO, 5 * _MINUTE),
    "dead_letters": Rule(ZERO, 5 * _MINUTE),
    "queue_unserved": Rule(2 * _MINUTE, 3 * _MINUTE),
    "queue_broken": Rule(ZERO, 5 * _MINUTE),
    "probe_stale": Rule(ZERO, 3 * _MINUTE),
    # The first is all there is to know; one that comes each minute is not to be said each minute.
    "slot_expired": Rule(ZERO, 60 * _MINUTE),
    "sweep_cut": Rule(ZERO, 60 * _MINUTE),
    "sweep_failed": Rule(ZERO, 60 * _MINUTE),
}
"""By kind; those of a queue's limits stand for queues that are gone, and are its limits' own for the others."""


def rules(limits: Mapping[str, Thresholds]) -> dict[str, Rule]:
    """Every rule: the kinds', and each queue's own."""
    found = dict(RULES)
    for queue, of in limits.items():
        own = {"queue_old": of.age, "queue_lag": of.lag, "queue_deep": of.depth, "dead_letters": of.dead}
        found |= {f"{kind}:{queue}": Rule(limit.for_, limit.keep) for kind, limit in own.items()}
    return found


def of_queue(one: QueueReading, limits: Thresholds, lane: str) -> Iterator[Finding]:
    """What is wrong with a queue."""

    def finding(kind: str, figure: str, found: object, threshold: object, means: str) -> Finding:
        return Finding(kind, one.queue, figure, _told(found), _told(threshold), f"{means} {_hurt(limits)}", lane)

    age, lag = one.oldest_age or ZERO, one.lag_p95 or ZERO
    old = age > _span(limits.age.most)
    if old:
        yield finding(
            "queue_old", "oldest_age", age, limits.age.most, f"A due message has not been begun. {_left(one)}"
        )
    if lag > _span(limits.lag.most):
        yield finding("queue_lag", "lag_p95", lag, limits.lag.most, f"Work starts late. {_left(one)}")
    if one.ready > _count(limits.depth.most) and (old or not drains(one)):
        yield finding("queue_deep", "ready", one.ready, limits.depth.most, f"It does not drain: {_flow(one)}.")
    if (one.dead_growth or 0) > _count(limits.dead.most):
        means = "Their work is not done, and nothing tries it again: look, mend, requeue (`fleet dead list`)."
        yield finding("dead_letters", "dead_growth", one.dead_growth, limits.dead.most, means)
    if one.consumers == 0 and age > UNSERVED_AFTER and not one.rate_out:  # an age says that something is due
        wait = f"{one.ready:,} wait" + (f", and {one.delayed:,} that nobody makes ready" if one.delayed else "")
        yield finding("queue_unserved", "consumers", 0, 1, f"Nobody takes its messages: {wait}.")
    if one.broken is not None:
        yield finding(
            "queue_broken", "type", one.broken, "its type", "Nothing of it moves until a person mends the key."
        )


def drains(one: QueueReading) -> bool:
    """Whether more ends than comes; one whose rates are not known is taken to, and its age is what tells."""
    if one.rate_out is None or one.rate_in is None:
        return one.consumers != 0
    return one.rate_out > one.rate_in


def of_roles(taken: Readings | None) -> Iterator[Finding]:
    """Whose readings stopped: all, or those of one of the two that take them."""
    limit = str(STALE_AFTER)
    if taken is None or taken.stale:
        age = "none at all" if taken is None else f"{taken.age()} old"
        means = "The figures of queues are not of now; no other alert can open or close by them."
        yield Finding("probe_stale", "readings", "age", age, limit, means)
        return
    for role, at in taken.taken.items():
        silent = taken.now() - at
        if STALE_AFTER < silent < _ROLE_FORGOTTEN:
            means = f"Queues are judged, but not by the {role}, which is one of the two that should: look at it."
            yield Finding("probe_stale", role, "age", f"{silent} old", limit, means)


def of_entries(
    taken: Readings, lines: Iterable[LedgerLine], lanes: Mapping[str, Lane], reports: Iterable[Report], owns: Owners
) -> Iterator[Finding]:
    """Entries of whose slots work ended unrun; `lines` are the ledger's recent ones, `lanes` each entry's lane."""
    reports = list(reports)
    never: dict[str, int] = {}
    for line in lines:
        if line.verdict == "expired":
            never[line.entry] = never.get(line.entry, 0) + line.count
    late = {name: one for name, one in taken.expired.items() if one.slots or one.rest}
    for entry in sorted(never.keys() | late.keys()):
        lane = lanes.get(entry)
        parts = []
        if never.get(entry):
            parts.append(f"{never[entry]:,} slots that no beat fired in time")
        if (one := late.get(entry)) and one.slots:
            parts.append(f"{one.slots:,} slots that no worker took up in time")
        if one and one.rest:
            parts.append(f"{one.rest:,} messages that a slot had sent")
        filled = what_filled(lane, taken, reports, owns) if lane and one else "its message was never sent"
        means = f"That work is not done; the next slot takes what it left. {filled}"
        yield Finding("slot_expired", entry, "expired", ", ".join(parts), "0", means, lane.name if lane else "")


def of_sweeps(taken: Readings) -> Iterator[Finding]:
    """Sweeps that did not come to their end, or whose rows failed."""
    for name, one in taken.sweeps.items():
        if one.cut:
            means = "Rows behind the cut were not looked at; the next pass takes them, if it comes further."
            yield Finding("sweep_cut", name, "cut", f"{one.cut:,} passes", "0", means)
        if one.failed:
            means = "Each stands in a line sweep_row_failed of its own; the others of its pass are done."
            yield Finding("sweep_failed", name, "failed", f"{one.failed:,} rows", "0", means)


Owners = Mapping[str, str]
"""Actor -> the queue that its messages lie in."""


def what_filled(lane: Lane, taken: Readings, reports: Iterable[Report], owns: Owners) -> str:
    """What a lane works on now and worked on lately, and what waits, most first."""
    queues = [taken.queues[queue] for queue in lane.queues if queue in taken.queues]
    running: dict[str, int] = {}
    for report in reports:
        if report.kind == "worker" and report.name == lane.name:
            for job in report.jobs:
                running[job.actor] = running.get(job.actor, 0) + 1
    own = [(name, one) for name, one in taken.actors.items() if owns.get(name) in lane.queues]
    lately = sorted(own, key=lambda pair: pair[1].wall, reverse=True)
    now = ", ".join(f"{count} x {actor}" for actor, count in sorted(running.items(), key=_most)[:_TOP]) or "nothing"
    before = ", ".join(_lately(actor, one) for actor, one in lately[:_TOP]) or "nothing that ended"
    return (
        f"Lane {lane.name} ({lane.processes} x {lane.threads} threads) runs {now}; lately {before}; "
        f"{sum(one.ready for one in queues):,} wait, {sum(one.in_flight for one in queues):,} are held."
    )


def _most(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]


def _lately(actor: str, one: ActorReading) -> str:
    return f"{actor} {one.jobs:,} jobs in {_told(one.wall)}"


def _hurt(limits: Thresholds) -> str:
    return f"Hurt: {limits.hurts}."


def _left(one: QueueReading) -> str:
    return f"{one.ready:,} wait, {one.in_flight:,} are held; {_flow(one)}."


def _flow(one: QueueReading) -> str:
    rates = ["?" if rate is None else f"{rate:.1f}" for rate in (one.rate_in, one.rate_out)]
    return f"{rates[0]} a minute come, {rates[1]} end, {one.consumers or 0} processes serve it"


def _told(value: object) -> str:
    if isinstance(value, timedelta):
        return str(timedelta(seconds=round(value.total_seconds())))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _span(limit: timedelta | int) -> timedelta:
    assert isinstance(limit, timedelta)  # its Thresholds refused all else
    return limit


def _count(limit: timedelta | int) -> int:
    assert isinstance(limit, int)
    return limit
