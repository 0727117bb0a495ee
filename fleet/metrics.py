"""Every metric the engine exports, in one place, with one line on what it means (the line is exported as its HELP).

A metric is made at its first count, so that a process which only sends pays nothing for the library, and one exports
only what it can speak of: a lane says nothing of who leads. Children of a lane write into a folder that their
supervisor sums and serves (`PROMETHEUS_MULTIPROC_DIR`, set by it; `fleet.workers.rooms`). What stands in Redis, whoever
put it there, is read when a beat is scraped (`fleet.read_gauges`).

Not guaranteed: that a counter is there before its first count, unless a `begin_…` below says zero. Rules therefore also
ask for series that were born above zero.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from fleet.clock import clock

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
_LAGS = (0.003, *_SECONDS, 3600, 10800)


@dataclass(frozen=True)
class Metric:
    """A counter's name is exported with `_total` behind it. `mode` says how a lane's children are made one gauge."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "read"]
    labels: tuple[str, ...]
    means: str
    mode: str = "mostrecent"
    buckets: tuple[float, ...] = _SECONDS


def _count(name: str, labels: str, means: str) -> Metric:
    return Metric(name, "counter", tuple(labels.split()), means)


def _level(name: str, labels: str, means: str, mode: str = "mostrecent") -> Metric:
    return Metric(name, "gauge", tuple(labels.split()), means, mode=mode)


def _spread(name: str, labels: str, means: str, buckets: tuple[float, ...] = _SECONDS) -> Metric:
    return Metric(name, "histogram", tuple(labels.split()), means, buckets=buckets)


def _read(name: str, labels: str, means: str) -> Metric:
    return Metric(name, "read", tuple(labels.split()), means)


EXPORTED: tuple[Metric, ...] = (
    # Jobs, by the children of a lane. Outcomes: done, failed, retried, expired, skipped, deadline; discarded or waits:
    # another fire's message ran its slot, or holds it.
    _count("fleet_messages", "queue actor outcome", "Messages that ended, by outcome"),
    _spread("fleet_job_seconds", "queue actor", "How long the body of an actor ran, in real seconds"),
    _spread("fleet_start_lag_seconds", "queue", "From when a message was due to its start, in night seconds", _LAGS),
    _level("fleet_jobs_running", "queue", "Jobs whose body runs now", "livesum"),
    _count("fleet_deadlines_raised", "strike", "Deadlines raised in bodies: the `first` of each, or `again`"),
    _count("fleet_stale_writes", "table", "Late writes of workers that had lost their row; they changed nothing"),
    _count("fleet_sweep_rows", "sweep outcome", "Rows a sweep worked through (done, failed)"),
    _count("fleet_sweeps", "sweep verdict", "Sweeps that ended (done; cut: before their last row)"),
    # Janitors, and the outbox as its janitor last saw it: a process that was not given the last pass says older things.
    _count("fleet_janitor_passes", "janitor verdict", "Passes of a janitor that ended (acted, idle, failed)"),
    _level("fleet_janitor_seen", "janitor state", "Rows before it cleaned (scanned, stuck, skipped_live)"),
    _level("fleet_janitor_timestamp_seconds", "janitor", "When its last pass ended, in real seconds since 1970"),
    _level(
        "fleet_janitor_oldest_seconds", "janitor", "How long the oldest stuck row had been so, in real seconds; or 0"
    ),
    _count("fleet_janitor_rows", "janitor outcome", "Rows a janitor mended, or could not (recovered, failed)"),
    _spread("fleet_janitor_seconds", "janitor", "How long a pass took, in real seconds"),
    _level("fleet_outbox_rows", "state", "Messages in the outbox: all that wait, and those of them that were refused"),
    _level("fleet_outbox_oldest_seconds", "", "Age of the oldest that waits in the outbox, in real seconds; or 0"),
    # Slots, by who judged or claimed them.
    _count("fleet_slots", "entry verdict", "Slots judged (fired, coalesced, expired, paused, overlapped)"),
    # `other`: of an entry that is none of the schedule's; a message is anybody's to write, and would make series.
    _count("fleet_slot_claims", "entry answer", "Claims (first, again, taken_over, discarded, waits, unanswered)"),
    # The processes of a lane, by its supervisor; those that run suspects apart.
    _level("fleet_lane_processes", "lane state", "Processes: as `declared`, and those that take messages (`serving`)"),
    _count("fleet_worker_starts", "lane", "Worker processes that a supervisor started"),
    _count("fleet_worker_ends", "lane how", "Processes that ended (died; left: retired, recycled or drained; suspect)"),
    _count("fleet_messages_lost", "queue reason", "Running messages made dead letters (hard_budget, poison)"),
    # The beat.
    _level("fleet_beat_leading", "", "1 while this beat replica leads, 0 while it follows", "livesum"),
    _count("fleet_beat_clock_jumps", "clock", "Jumps of a clock that a beat noticed: its `own`, or the `server`'s"),
    _count("fleet_balancer_ticks", "reason", "Decisions of the balancer, by the reason it gave"),
    # What stands in Redis, read when a beat is scraped; queues only while the reading is younger than three minutes.
    _read("fleet_probe_timestamp_seconds", "", "When the queues were last read, in real seconds since 1970"),
    _read("fleet_queue_depth", "queue state", "Messages of a queue (ready, delayed, in_flight, dead)"),
    _read("fleet_queue_oldest_seconds", "queue", "Age of the oldest that could start, in night seconds; 0 if none"),
    _read(
        "fleet_queue_lag_p95_seconds", "queue", "95th percentile of the start lag of the last minutes, night seconds"
    ),
    _read("fleet_queue_consumers", "queue", "Workers alive that take messages of a queue"),
    _read("fleet_alerts_open", "kind", "Alerts of the fleet's own that are open"),
    _read("fleet_allowance", "entry", "Places that the balancer allows an elastic entry now"),
    _read("fleet_quota_size", "quota", "Places of a quota in all"),
    _read("fleet_quota_places", "quota holder", "Places of a quota that are taken (people, batch)"),
)

_BY_NAME = {metric.name: metric for metric in EXPORTED}
_first = threading.Lock()


def _begin_anew() -> None:
    """A fork inherits the lock, and not the thread that may hold it."""
    global _first
    _first = threading.Lock()


os.register_at_fork(after_in_child=_begin_anew)


def declared(name: str) -> Metric:
    """The metric of this name."""
    return _BY_NAME[name]


def _of(name: str) -> Any:
    # `cache` alone would let two threads that start together register a metric twice, which is refused.
    with _first:
        return _registered(name)


@cache
def _registered(name: str) -> Any:
    import prometheus_client as library

    metric = _BY_NAME[name]
    match metric.kind:
        case "counter":
            return library.Counter(name, metric.means, metric.labels)
        case "histogram":
            return library.Histogram(name, metric.means, metric.labels, buckets=metric.buckets)
        case "gauge":
            mode: Any = metric.mode
            return library.Gauge(name, metric.means, metric.labels, multiprocess_mode=mode)
    raise KeyError(f"{name} is read from Redis, and counted nowhere")


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

    return serve_pages(host, port, scrape=make_wsgi_app(registry or REGISTRY), healthy=healthy, ready=ready)


def begin_worker(queues: Iterable[str]) -> None:
    """Say zero of what a worker counts, before many threads could be the first at once."""
    for queue in queues:
        _of("fleet_jobs_running").labels(queue).inc(0)
        _of("fleet_start_lag_seconds").labels(queue)
    for strike in ("first", "again"):
        _of("fleet_deadlines_raised").labels(strike)


def begin_lane(lane: str, queues: Iterable[str]) -> None:
    """Say zero of what a supervisor counts."""
    _of("fleet_worker_starts").labels(lane)
    for how in ("died", "left", "suspect"):
        _of("fleet_worker_ends").labels(lane, how)
    for queue in queues:
        for reason in ("hard_budget", "poison"):
            _of("fleet_messages_lost").labels(queue, reason)


def begin_beat(entries: Iterable[str], verdicts: Iterable[str], reasons: Iterable[str]) -> None:
    """Say zero of what a beat counts: also of a balancer that never decides, which a rule could not tell from none."""
    leading(False)
    for reason in reasons:
        _of("fleet_balancer_ticks").labels(reason)
    for which in ("own", "server"):
        _of("fleet_beat_clock_jumps").labels(which)
    for verdict in verdicts:
        for entry in entries:
            _of("fleet_slots").labels(entry, verdict)


def message_ended(queue: str, actor: str, outcome: str) -> None:
    _of("fleet_messages").labels(queue, actor, outcome).inc()


def job_took(queue: str, actor: str, seconds: float) -> None:
    _of("fleet_job_seconds").labels(queue, actor).observe(seconds)


def start_lag(queue: str, seconds: float) -> None:
    _of("fleet_start_lag_seconds").labels(queue).observe(seconds)


def job_running(queue: str, change: int) -> None:
    _of("fleet_jobs_running").labels(queue).inc(change)


def sweep_ended(sweep: str, verdict: str, done: int, failed: int) -> None:
    _of("fleet_sweeps").labels(sweep, verdict).inc()
    _of("fleet_sweep_rows").labels(sweep, "done").inc(done)
    _of("fleet_sweep_rows").labels(sweep, "failed").inc(failed)


def janitor_passed(
    janitor: str, verdict: str, seconds: float, *, levels: dict[str, int], rows: dict[str, int], oldest: float
) -> None:
    """One pass: how it ended, what it measured (`levels`), what became of rows, and the oldest's age in seconds."""
    _of("fleet_janitor_passes").labels(janitor, verdict).inc()
    _of("fleet_janitor_seconds").labels(janitor).observe(seconds)
    _of("fleet_janitor_timestamp_seconds").labels(janitor).set(clock.real_now().timestamp())
    _of("fleet_janitor_oldest_seconds").labels(janitor).set(oldest)
    for state, count in levels.items():
        _of("fleet_janitor_seen").labels(janitor, state).set(count)
    for outcome, count in rows.items():
        _of("fleet_janitor_rows").labels(janitor, outcome).inc(count)


def deadline_raised(again: bool) -> None:
    _of("fleet_deadlines_raised").labels("again" if again else "first").inc()


def stale_write(table: str) -> None:
    _of("fleet_stale_writes").labels(table).inc()


def slot(entry: str, verdict: str, count: int = 1) -> None:
    _of("fleet_slots").labels(entry, verdict).inc(count)


def clock_jumped(which: str) -> None:
    _of("fleet_beat_clock_jumps").labels(which).inc()


def slot_claim(entry: str, answer: str) -> None:
    _of("fleet_slot_claims").labels(entry, answer).inc()


def outbox(waiting: int, refused: int, oldest: float) -> None:
    _of("fleet_outbox_rows").labels("waiting").set(waiting)
    _of("fleet_outbox_rows").labels("refused").set(refused)
    _of("fleet_outbox_oldest_seconds").set(oldest)


def leading(leads: bool) -> None:
    _of("fleet_beat_leading").set(int(leads))


def lane_processes(lane: str, declared: int, serving: int) -> None:
    _of("fleet_lane_processes").labels(lane, "declared").set(declared)
    _of("fleet_lane_processes").labels(lane, "serving").set(serving)


def worker_started(lane: str) -> None:
    _of("fleet_worker_starts").labels(lane).inc()


def worker_ended(lane: str, how: Literal["died", "left", "suspect"]) -> None:
    _of("fleet_worker_ends").labels(lane, how).inc()


def message_lost(queue: str, reason: Literal["hard_budget", "poison"]) -> None:
    _of("fleet_messages_lost").labels(queue, reason).inc()


def balancer_tick(reason: str) -> None:
    _of("fleet_balancer_ticks").labels(reason).inc()
