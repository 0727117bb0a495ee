"""What is measured of each peer; each returns figures by name, or raises `Failed`, which is printed in its place."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import psutil

from tests.benchmarks.peers.stage import OURS, ROOT, STOCK, STOCK_256, Contender, Failed, Run

Figures = dict[str, float]
_LOST_AFTER = 90.0


@dataclass(frozen=True)
class Measure:
    """A line of the table. `unit` is printed; `higher_is_better` says which way a ratio goes."""

    name: str
    work: str
    unit: str
    measure: Callable[[Run], Figures]
    higher_is_better: bool = False


def _send(run: Run) -> Figures:
    return {"send": run.ask("send", "noop", 3000)}


def _many(run: Run) -> Figures:
    return {"fan-out": run.ask("many", "noop", 10_000)}


def _drain(run: Run, threads: int, messages: int) -> Figures:
    run.workers(2, threads)  # that all begin, and import, before the clock does
    before = run.done()
    _pause(run)
    run.ask("fill", "bench", "noop", messages, '["number"]')
    began = time.monotonic()
    _go_on(run)
    run.until(lambda: run.done() >= before + messages, 120, "end of the drain")
    return {"drain": messages / (time.monotonic() - began)}


def _pause(run: Run) -> None:
    for process in _family(run):
        process.suspend()


def _go_on(run: Run) -> None:
    for process in _family(run):
        process.resume()


def _family(run: Run) -> list[psutil.Process]:
    found = []
    for process in run._running:
        if process.poll() is None:
            one = psutil.Process(process.pid)
            found += [one, *one.children(recursive=True)]
    return found


def _latency(run: Run, count: int, low: float, high: float) -> Figures:
    run.workers(1, 8)
    run.ask("paced", 3, low, low)  # warms
    run.until(lambda: len(run.notes("latencies")) >= 3, 30, "first stamps")
    run.ask("paced", count, low, high)
    run.until(lambda: len(run.notes("latencies")) >= count + 3, 30, "last stamp")
    seen = sorted(map(float, run.notes("latencies")[3:]))
    return {"p50": statistics.median(seen), "p99": seen[min(len(seen) - 1, int(len(seen) * 0.99))]}


def _sleepers(run: Run) -> Figures:
    if not run.contender.has_threads:
        raise Failed("no threads: 200 processes")
    run.workers(1, 200)
    before = run.done()
    _pause(run)  # a slow sender would have them done before the last is there
    run.ask("fill", "bench", "nap", 2000, "[0.25]")
    began, rss = time.monotonic(), 0
    _go_on(run)
    while run.done() < before + 2000:
        rss = max(rss, sum(one.memory_info().rss for one in _family(run) if one.is_running()))
        if time.monotonic() - began > 60:
            raise Failed("not done within 60 s")
        time.sleep(0.02)
    return {"seconds": time.monotonic() - began, "MiB": rss / 2**20}


def _flood(run: Run) -> Figures:
    """The start wait of one queue while another is flooded, each served by a process of its own."""
    run.workers(1, 8, "people")
    run.workers(1, 2, "batch")
    run.ask("trickle", "people", 5, 0.1)
    run.ask("fill", "batch", "burn", 2000, "[0.02]")
    before = len(run.notes("latencies"))
    run.ask("trickle", "people", 60, 0.2)
    run.until(lambda: len(run.notes("latencies")) >= before + 60, 30, "last stamp")
    seen = sorted(map(float, run.notes("latencies")[before:]))
    return {"p50": statistics.median(seen), "p99": seen[-1]}


def _killed(run: Run) -> Figures:
    """SIGKILL of a worker with 50 jobs of 5 s: seconds until the last one runs again in a fresh worker."""
    threads = 50 if run.contender.has_threads else 8
    old = run.workers(1, threads)
    count = 50 if run.contender.has_threads else len(old)
    run.ask("fill", "bench", "long", count, '["number", 5]')
    run.until(lambda: len(run.notes("starts")) >= count, 30, "50 jobs under way")
    for process in old:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    killed = time.monotonic()
    for _ in old:
        run.start("worker", threads, "bench")
    first = {note.partition(":")[0] for note in run.notes("starts")[:count]}

    def again() -> set[str]:
        return {note.partition(":")[0] for note in run.notes("starts")[count:]}

    while again() < first and time.monotonic() - killed < _LOST_AFTER:
        if int(time.monotonic() - killed) % 2 == 0:
            run.ask("fill", "bench", "noop", 1, '["number"]')  # some look for the lost only under traffic
        time.sleep(0.2)
    return {"seconds": time.monotonic() - killed, "not run again": float(len(first - again()))}


def _schedulers(run: Run) -> Figures:
    """Two schedulers of a job due every second; one is killed after 6 s. Doubled seconds, and the longest gap."""
    if not run.contender.has_scheduler:
        raise Failed("no entries by the second")
    run.workers(1, 4)
    application = run.folder / "app"
    if run.contender is OURS:
        shutil.copytree(ROOT / "tests" / "benchmarks" / "peers" / "app", application, dirs_exist_ok=True)
    more = {
        "BENCH_APP": str(application),
        "FLEET_REDIS_URL": run.url,
        "FLEET_NAMESPACE": run.namespace,
        "FLEET_LEADER_TTL": "3s",
        "FLEET_LEADER_RENEWAL": "1s",
    }
    started = [run.start("scheduler", **more) for _ in range(2)]
    run.until(lambda: len(run.notes("fires")) >= 4, 30, "first fires")
    os.killpg(started[0].pid, signal.SIGKILL)
    time.sleep(12)
    fires = sorted(map(float, run.notes("fires")))
    seconds = [round(fire) for fire in fires]
    gaps = [after - before for before, after in pairwise(fires)]
    return {"doubled": float(len(seconds) - len(set(seconds))), "longest gap, s": max(gaps, default=0.0)}


MEASURES = (
    Measure("send", "one producer, a call a message", "messages/s", _send, higher_is_better=True),
    Measure("fan-out", "one producer, the fastest way documented", "messages/s", _many, higher_is_better=True),
    Measure(
        "drain-8",
        "10,000 no-ops, 2 processes of 8",
        "messages/s",
        lambda run: _drain(run, 8, 10_000),
        higher_is_better=True,
    ),
    Measure(
        "drain-1",
        "2,000 no-ops, 2 processes of 1",
        "messages/s",
        lambda run: _drain(run, 1, 2_000),
        higher_is_better=True,
    ),
    Measure("idle", "send to start, one each 1.5 to 2.5 s, 12", "ms", lambda run: _latency(run, 12, 1.5, 2.5)),
    Measure("steady", "send to start at 100/s, 1,000", "ms", lambda run: _latency(run, 1000, 0.01, 0.01)),
    Measure("sleepers", "2,000 waits of 250 ms, one process, 200 at once", "s, MiB", _sleepers),
    Measure("flood", "send to start at 5/s while another process burns 2,000 x 20 ms", "ms", _flood),
    Measure("kill", "SIGKILL with 50 jobs of 5 s: until all run again (90 s at most)", "s", _killed),
    Measure("schedulers", "two schedulers, due every second, one killed", "", _schedulers),
)
BESIDE: tuple[Contender, ...] = (STOCK, STOCK_256)
