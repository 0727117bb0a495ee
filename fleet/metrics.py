"""Every metric the engine exports, in one place, with one line on what it means.

prometheus-client is imported at the first count, so that a process which only sends pays nothing for it. Children
of a lane write into a folder that their supervisor sums and serves (`PROMETHEUS_MULTIPROC_DIR`, set by it).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

_first = threading.Lock()


def _metrics() -> dict[str, Any]:
    # `cache` alone would let two threads that start together register each metric twice, which is refused.
    with _first:
        return _registered()


@cache
def _registered() -> dict[str, Any]:
    from prometheus_client import Counter, Gauge, Histogram

    seconds = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
    return {
        # How many messages ended, by queue, actor and outcome (done, failed, retried, expired, skipped, deadline,
        # discarded or waits: another fire's message ran its slot, or holds it).
        "messages": Counter("fleet_messages", "Messages that ended", ["queue", "actor", "outcome"]),
        # How long the body of an actor ran, in real seconds.
        "duration": Histogram("fleet_job_seconds", "Duration of a job's body", ["queue", "actor"], buckets=seconds),
        # Jobs whose body runs now.
        "running": Gauge("fleet_jobs_running", "Jobs running now", ["queue"], multiprocess_mode="livesum"),
        # Rows a sweep worked through, by outcome.
        "sweep_rows": Counter("fleet_sweep_rows", "Rows of a sweep", ["sweep", "outcome"]),
        # Passes of a janitor that ended, by verdict (acted, idle, failed).
        "janitor_passes": Counter("fleet_janitor_passes", "Passes of a janitor", ["janitor", "verdict"]),
        # What its last pass measured before it cleaned, by state (scanned, stuck, skipped_live).
        "janitor_seen": Gauge(
            "fleet_janitor_seen", "Rows at the last pass", ["janitor", "state"], multiprocess_mode="livemostrecent"
        ),
        # How long the oldest of the stuck had been so, in real seconds; 0 when there was none.
        "janitor_oldest": Gauge(
            "fleet_janitor_oldest_seconds", "Age of what was stuck", ["janitor"], multiprocess_mode="livemostrecent"
        ),
        # Rows a janitor mended, or could not, by outcome (recovered, failed).
        "janitor_rows": Counter("fleet_janitor_rows", "Rows a janitor acted on", ["janitor", "outcome"]),
        # How long a pass took, in real seconds.
        "janitor_took": Histogram("fleet_janitor_seconds", "Duration of a pass", ["janitor"], buckets=seconds),
        # Deadlines raised in bodies: the `first` of each, and those that were raised `again` since it did not leave.
        "deadlines": Counter("fleet_deadlines_raised", "Deadlines raised in bodies", ["strike"]),
        # Writes of workers that had lost their row, by table: they changed nothing.
        "stale_writes": Counter("fleet_stale_writes", "Late writes to rows that others hold", ["table"]),
        # Slots of the schedule, by entry and verdict (fired, coalesced, expired, paused, overlapped).
        "slots": Counter("fleet_slots", "Slots of the schedule", ["entry", "verdict"]),
        # Claims of slots by their messages, by entry and answer (first, again, taken_over, discarded, waits,
        # unanswered).
        "claims": Counter("fleet_slot_claims", "Claims of slots by their messages", ["entry", "answer"]),
        # Messages in the outbox that wait to be sent, and those among them that could not be, as the janitor last saw.
        "outbox": Gauge("fleet_outbox_rows", "Messages in the outbox", ["state"], multiprocess_mode="livemostrecent"),
        # 1 while this beat replica leads.
        "leading": Gauge("fleet_beat_leading", "Whether this replica leads", multiprocess_mode="livesum"),
        # Decisions of the balancer, by the reason it gave.
        "balancer_ticks": Counter("fleet_balancer_ticks", "Decisions of the balancer", ["reason"]),
        # Jumps of a clock that a beat noticed: its `own` wall clock, or the `server`'s.
        "clock_jumps": Counter("fleet_beat_clock_jumps", "Jumps of a clock", ["clock"]),
    }


def _no_complaint() -> str | None:
    return None


def serve(
    host: str,
    registry: Any = None,
    *,
    port: int = 0,
    healthy: Callable[[], str | None] = _no_complaint,
    ready: Callable[[], str | None] = _no_complaint,
) -> str:
    """Serve `/metrics` of a registry (by default this process's own), `/healthz` and `/readyz`; returns the address.

    `healthy` and `ready` answer None, or what is wrong; they are called from several threads. Port 0 is a free one.
    Raises `AddressUnusable`.
    """
    from prometheus_client import REGISTRY, make_wsgi_app

    from fleet.workers.health import serve as serve_pages

    _metrics()  # so that the first scrape shows each of them
    return serve_pages(host, port, scrape=make_wsgi_app(registry or REGISTRY), healthy=healthy, ready=ready)


def message_ended(queue: str, actor: str, outcome: str) -> None:
    _metrics()["messages"].labels(queue, actor, outcome).inc()


def job_took(queue: str, actor: str, seconds: float) -> None:
    _metrics()["duration"].labels(queue, actor).observe(seconds)


def job_running(queue: str, change: int) -> None:
    _metrics()["running"].labels(queue).inc(change)


def sweep_rows(sweep: str, done: int, failed: int) -> None:
    _metrics()["sweep_rows"].labels(sweep, "done").inc(done)
    _metrics()["sweep_rows"].labels(sweep, "failed").inc(failed)


def janitor_passed(
    janitor: str, verdict: str, seconds: float, *, levels: dict[str, int], rows: dict[str, int], oldest: float
) -> None:
    """One pass: how it ended, what it measured (`levels`), what became of rows, and the oldest's age in seconds."""
    known = _metrics()
    known["janitor_passes"].labels(janitor, verdict).inc()
    known["janitor_took"].labels(janitor).observe(seconds)
    known["janitor_oldest"].labels(janitor).set(oldest)
    for state, count in levels.items():
        known["janitor_seen"].labels(janitor, state).set(count)
    for outcome, count in rows.items():
        known["janitor_rows"].labels(janitor, outcome).inc(count)


def deadline_raised(again: bool) -> None:
    _metrics()["deadlines"].labels("again" if again else "first").inc()


def stale_write(table: str) -> None:
    _metrics()["stale_writes"].labels(table).inc()


def slot(entry: str, verdict: str, count: int = 1) -> None:
    _metrics()["slots"].labels(entry, verdict).inc(count)


def clock_jumped(which: str) -> None:
    _metrics()["clock_jumps"].labels(which).inc()


def slot_claim(entry: str, answer: str) -> None:
    _metrics()["claims"].labels(entry, answer).inc()


def outbox(waiting: int, refused: int) -> None:
    _metrics()["outbox"].labels("waiting").set(waiting)
    _metrics()["outbox"].labels("refused").set(refused)


def leading(leads: bool) -> None:
    _metrics()["leading"].set(int(leads))


def balancer_tick(reason: str) -> None:
    _metrics()["balancer_ticks"].labels(reason).inc()
