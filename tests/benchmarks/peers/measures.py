"""What is measured of each peer; each returns figures by name, or raises `Failed`, which is printed in its place.

Every measure says how many processes of how many threads do the work. Clocks begin when all workers have done a job.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from tests.benchmarks.peers.stage import OURS, ROOT, Contender, Failed, Run

Figures = dict[str, float]
_LOST_AFTER = 90.0
_BEGINS_SECONDS = 5.0  # for a second scheduler, which cannot be seen to have begun
_WATCHED_SECONDS = 15.0  # twice a term of ours and more, behind the kill of a scheduler, and a slot more


@dataclass(frozen=True)
class Measure:
    """A line of the table. `unit` is printed; `higher_is_better` says which way a ratio goes.

    What is measured `once` takes minutes, and says whether as much as how long.
    """

    name: str
    work: str
    unit: str
    measure: Callable[[Run], Figures]
    higher_is_better: bool = False
    once: bool = False

    def is_for(self, contender: Contender) -> bool:
        """Whether it is measured of this one."""
        return self.name.startswith(contender.only)


def _send(run: Run) -> Figures:
    return {"send": run.ask("send", "noop", 3000)}


def _many(run: Run) -> Figures:
    return {"fan-out": run.ask("many", "noop", 10_000)}


def _drain(run: Run, threads: int, messages: int) -> Figures:
    run.workers(2, threads)  # that all begin, and import, before the clock does
    before = run.done()
    run.pause()
    run.ask("fill", "bench", "noop", messages, '["number"]')
    began = time.monotonic()
    run.go_on()
    run.until(lambda: run.done() >= before + messages, 120, "end of the drain")
    return {"drain": messages / (time.monotonic() - began)}


def _latency(run: Run, count: int, low: float, high: float) -> Figures:
    run.workers(1, 8)
    run.ask("paced", 3, low, low)  # warms
    run.until(lambda: len(run.notes("latencies")) >= 3, 30, "first stamps")
    run.ask("paced", count, low, high)
    run.until(lambda: len(run.notes("latencies")) >= count + 3, 30, "last stamp")
    return _quantiles(run.notes("latencies")[3:])


def _sleepers(run: Run) -> Figures:
    if not run.contender.has_threads:
        raise Failed("no threads: 200 processes")
    run.workers(1, 200)
    before = run.done()
    run.pause()  # a slow sender would have them done before the last is there
    run.ask("fill", "bench", "nap", 2000, "[0.25]")
    began, rss = time.monotonic(), 0
    run.go_on()
    while run.done() < before + 2000:
        rss = max(rss, sum(one.memory_info().rss for one in run.family() if one.is_running()))
        if time.monotonic() - began > 60:
            raise Failed("not done within 60 s")
        time.sleep(0.02)
    return {"seconds": time.monotonic() - began, "MiB": rss / 2**20}


def _flood(run: Run) -> Figures:
    """The start wait of one queue while another is flooded, each served by a process of its own, or all by one."""
    if run.contender.one_pool:
        run.workers(1, 10, "people", "batch")
    else:
        run.workers(1, 8, "people")
        run.workers(1, 2, "batch")
    run.ask("trickle", "people", 5, 0.1)
    run.ask("fill", "batch", "burn", 2000, "[0.02]")
    before = len(run.notes("latencies"))
    run.ask("trickle", "people", 200, 0.05)
    run.until(lambda: len(run.notes("latencies")) >= before + 200, 30, "last stamp")
    return _quantiles(run.notes("latencies")[before:])


def _quantiles(notes: list[str]) -> Figures:
    seen = sorted(map(float, notes))
    return {"p50": statistics.median(seen), "p99": seen[min(len(seen) - 1, int(len(seen) * 0.99))]}


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
    """Two schedulers of a job due every second; the one that fires is killed. Doubled runs, and the longest gap.

    Of a library whose entries go by the minute, every minute.
    """
    every = run.contender.entry_seconds
    alone, together = (3, 6) if every == 1 else (1, 3)
    run.workers(1, 4)
    application = run.folder / "app"
    if run.contender is OURS:
        shutil.copytree(ROOT / "tests" / "benchmarks" / "peers" / "app", application, dirs_exist_ok=True)
    more = {"BENCH_APP": str(application), "FLEET_REDIS_URL": run.url, "FLEET_NAMESPACE": run.namespace}
    first = run.start("scheduler", **more)
    run.until(lambda: len(run.notes("fires")) >= alone, 30 + every, "first fires")  # where one leads, it is this one
    run.start("scheduler", **more)
    time.sleep(_BEGINS_SECONDS)
    before = len(run.notes("fires"))
    run.until(lambda: len(run.notes("fires")) >= before + together, 30 + every * together, "further fires")
    os.killpg(first.pid, signal.SIGKILL)
    time.sleep(_WATCHED_SECONDS + every)
    fires = sorted(map(float, run.notes("fires")))
    gaps = [after - before for before, after in pairwise(fires)]
    twice = doubled(fires, every, by_clock=run.contender.by_clock)
    return {"doubled": float(twice), "longest gap, s": max(gaps, default=0.0)}


def doubled(fires: list[float], every: float, *, by_clock: bool) -> int:
    """How many runs were of a slot that had one: less than half a slot behind another.

    Where slots are the clock's, with no slot's instant between: a leader that takes over may run the slot that is past
    just before the next one, and these are two.
    """
    return sum(
        after - before < every / 2 and (not by_clock or after // every == before // every)
        for before, after in pairwise(sorted(fires))
    )


def _measure(name: str, work: str, unit: str, measure: Callable[[Run], Figures], *, once: bool = False) -> Measure:
    return Measure(name, work, unit, measure, higher_is_better=unit == "messages/s", once=once)


MEASURES = (
    _measure("send", "one producer, a call a message, 3,000", "messages/s", _send),
    _measure("fan-out", "one producer, the fastest way documented, 10,000", "messages/s", _many),
    _measure("drain-8", "10,000 no-ops, 2 processes of 8 threads", "messages/s", lambda run: _drain(run, 8, 10_000)),
    _measure("drain-1", "2,000 no-ops, 2 processes of 1 thread", "messages/s", lambda run: _drain(run, 1, 2_000)),
    _measure(
        "idle", "send to start, one each 1.5 to 2.5 s, 12, 8 threads", "ms", lambda run: _latency(run, 12, 1.5, 2.5)
    ),
    _measure("steady", "send to start at 100/s, 1,000, 8 threads", "ms", lambda run: _latency(run, 1000, 0.01, 0.01)),
    _measure("sleepers", "2,000 waits of 250 ms, one process, 200 threads", "s, MiB", _sleepers),
    _measure(
        "flood", "send to start at 20/s, 200, 8 threads, while another process of 2 burns 2,000 x 20 ms", "ms", _flood
    ),
    _measure(
        "kill", "SIGKILL of a worker in 50 jobs of 5 s: until all run again (90 s at most)", "s", _killed, once=True
    ),
    _measure(
        "schedulers",
        "two schedulers of an entry due every second, the first killed 6 runs after both began (huey: every minute, 3)"
        "; doubled: within half a period, and of one slot where slots are the clock's, all but celery's and rq's",
        "",
        _schedulers,
        once=True,
    ),
)
