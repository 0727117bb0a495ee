"""A lane: who serves it, what runs and waits, how old that is, what is wrong, and by when a row is terminal."""

from __future__ import annotations

from collections.abc import Iterator

from fleet import alerts, probe
from fleet.bounds import bound_of
from fleet.declarations import Lane
from fleet.explain.model import Asked, plain, running
from fleet.flow import MINUTE
from fleet.probe import QueueReading
from fleet.views import span

_MOST_QUEUES, _MOST_ALERTS = 3, 2


def lines(asked: Asked, lane: Lane) -> Iterator[str]:
    """What is to be said of a lane."""
    yield f"It waits for {lane.waits_for}; queues {', '.join(lane.queues)}"
    yield from _processes(asked, lane)
    yield from _jobs(asked, lane)
    readings = sorted(probe.read(asked.broker, lane.queues), key=lambda one: one.left, reverse=True)
    for reading in readings[:_MOST_QUEUES]:
        yield _queue(reading)
    if len(readings) > _MOST_QUEUES:
        yield f"{len(readings) - _MOST_QUEUES} more queues hold less."
    yield from _alerts(asked, lane)
    bound = bound_of(asked.app, lane, asked.now)
    yield f"A job's row is terminal at the latest {span(bound.after_hard)} after its hard budget."


def _processes(asked: Asked, lane: Lane) -> Iterator[str]:
    of_lane = [report for report in asked.reports if report.name == lane.name]
    serving = [report for report in of_lane if report.serves]
    others = [report.phase for report in of_lane if report.kind == "worker" and not report.serves]
    hosts = ", ".join(sorted({report.host for report in serving}))
    more = f"; {len(others)} more are {', '.join(sorted(set(others)))}" if others else ""
    if not serving:
        yield f"NO process serves it{more}: start `fleet work {lane.name}`, or look at its log."
        return
    draining = ", and its supervisor DRAINS" if any(one.phase == "draining" for one in of_lane) else ""
    yield f"{len(serving)} of {lane.processes} processes serve it, on {hosts}{more}{draining}."


def _jobs(asked: Asked, lane: Lane) -> Iterator[str]:
    jobs = [(job, report) for job, report in asked.jobs() if report.name == lane.name]
    if not jobs:
        yield "Nothing runs in it."
        return
    job, report = jobs[0]
    threads = lane.processes * lane.threads
    yield f"{len(jobs):,} jobs run in {threads:,} threads; the longest, {plain(job.actor)}, {running(job, report)}."


def _queue(one: QueueReading) -> str:
    age = f", the oldest due for {span(one.oldest_age)}" if one.oldest_age is not None else ""
    lag = f"; starts lag {span(one.lag_p50)}, p95 {span(one.lag_p95)}" if one.lag_p95 is not None else ""
    flow = ""
    if one.rate_out is not None and one.rate_in is not None:
        flow = f"; {one.rate_in:,.3g} come and {one.rate_out:,.3g} end a minute"
        if one.ready and one.rate_out > one.rate_in:
            flow += f", drained in {span(one.ready / (one.rate_out - one.rate_in) * MINUTE)}"
        elif one.ready:
            flow += ", it does NOT drain"
    return (
        f"{one.queue}: {one.ready:,} wait{age}, {one.in_flight:,} are held, {one.delayed:,} delayed, "
        f"{one.dead:,} dead letters{lag}{flow}."
    )


def _alerts(asked: Asked, lane: Lane) -> Iterator[str]:
    found = [one for one in alerts.open_alerts(asked.broker) if one.finding.lane == lane.name]
    for one in found[:_MOST_ALERTS]:
        yield (
            f"ALERT {one.finding.kind} of {plain(one.finding.subject)} since {asked.told(one.since)}: "
            f"{plain(one.finding.means)} Runbook: {one.runbook}"
        )
    if len(found) > _MOST_ALERTS:
        yield f"{len(found) - _MOST_ALERTS} more alerts are open."
