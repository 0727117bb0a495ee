"""What the beat costs: one fire, a thousand at one instant, ten thousand entries that wait.

Nobody else does what it does in one step, so there is no contender; each figure stands beside its aim where it has one.
The fire is measured in this process; the other two are a `fleet beat` process, seen from Redis: a slot's lateness is
the server's time of its ledger line less the slot, so that APScheduler's ring, the pass and the script are all in it.

Not guaranteed: that other load on the machine is not in the figures.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil

from beat.fire import Firer
from beat.leader import Leader
from beat.now import Now
from fleet import Entry, ledger, logs
from fleet.broker import FleetBroker, keys
from fleet.clock import Night, clock
from tests.benchmarks.stage import ROOT, Stage

_FIRES = 3_000
_DUE, _PERIOD, _INSTANTS = 1_000, timedelta(seconds=5), 5
_HELD, _STEADY_SECONDS = 10_000, 20.0
_AIM_MS = 150.0
_ACTORS = "from fleet import queue\n\n@queue('ticks').actor\ndef tick() -> None: ...\n"
_LANES = """
from datetime import timedelta
from fleet import Budget, Lane, Retry

budget = Budget(timedelta(seconds=5), timedelta(seconds=9), because="nobody works this lane in the measurement")
retry = Retry(attempts=3, first=timedelta(seconds=1), longest=timedelta(minutes=1))
LANES = [Lane("ticks", ["ticks"], waits_for="nobody", processes=1, threads=1, budget=budget, retry=retry)]
"""
_SCHEDULE = """
from datetime import timedelta
from fleet import Entry

second = timedelta(seconds=1)
SCHEDULE = [
    Entry(name, actor="tick", expires=second, because="the measurement wants slots", **when)
    for name, when in (ENTRIES)
]
"""
_MANY_AT_ONCE = "(f'e{n}', {'every': timedelta(seconds=SECONDS)}) for n in range(MANY)"
_MANY_WAIT = (
    "*((f'e{n}', {'cron': f'{n % 60} {n // 60 % 24} * * *'}) for n in range(MANY)), ('tick', {'every': second})"
)


def report(stage: Stage, rounds: int) -> None:
    """Print all of it; the fires `rounds` times."""
    fires = [_fires(stage) for _ in range(rounds)]
    p50, p99 = (statistics.median(column) for column in zip(*fires, strict=True))
    print(f"beat, one fire: p50 {p50:.0f} µs, p99 {p99:.0f} µs (reckoning, round trip, verdict, message, ledger, log)")
    late = sorted(_lateness(stage))
    verdict = "met" if _percentile(late, 99) <= _AIM_MS else "NOT MET"
    print(
        f"beat, {_DUE:,} entries due at one instant: late p50 {_percentile(late, 50):.0f} ms, "
        f"p99 {_percentile(late, 99):.0f} ms, most {late[-1]:.0f} ms; aim p99 <= {_AIM_MS:.0f} ms: {verdict}"
    )
    held = _held(stage)
    print(
        f"beat, {_HELD:,} entries held: {held.start:.1f} s from the start of the process to its first fire, "
        f"{held.cpu:.1%} of a CPU after that, {held.rss / 2**20:.0f} MiB"
    )


def _percentile(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _fires(stage: Stage) -> tuple[float, float]:
    """p50 and p99 in µs of a pass in which one slot of one entry is due."""
    logs.configure("json", "ERROR")
    broker = FleetBroker(url=stage.redis_url, namespace=stage.namespace, middleware=[])
    actor: Any = SimpleNamespace(queue_name="ticks")
    broker.actors = {"tick": actor}
    second = timedelta(seconds=1)
    entry = Entry("tick", every=second, expires=60 * second, because="the measurement wants slots")
    leader = cast(Leader, SimpleNamespace(token="bench", epoch=1, leads=lambda: True))
    stage.client.set(keys.leader(stage.namespace), "bench")
    stage.client.set(keys.epoch(stage.namespace), 1)
    firer, took, begin = Firer(broker, leader, [entry], Now()), [], datetime.now(UTC).replace(microsecond=500_000)
    try:
        for number in range(_FIRES):
            clock.set_night(Night(begin + number * second, clock.real_now(), 0.001))
            began = time.perf_counter()
            firer.pass_over(["tick"])
            took.append((time.perf_counter() - began) * 1e6)
    finally:
        clock.set_night(None)
    sent = int(stage.client.llen(keys.queue(stage.namespace, "ticks")))
    if sent < _FIRES - 1:
        raise RuntimeError(f"{sent} of {_FIRES - 1} slots were sent.")
    stage.clear()
    ordered = sorted(took[100:])
    return _percentile(ordered, 50), _percentile(ordered, 99)


def _lateness(stage: Stage) -> list[float]:
    """Milliseconds between a slot and its ledger line, of all entries at several instants, without the first."""
    with _beat(stage, _MANY_AT_ONCE.replace("SECONDS", str(_PERIOD.seconds)).replace("MANY", str(_DUE))):
        names = [f"e{number}" for number in range(_DUE)]
        _until(lambda: len(_fired(stage, "e0")) >= _INSTANTS)
        time.sleep(1)  # the others of that instant
        lines = [line for name in names for line in _fired(stage, name)[1:_INSTANTS]]
    if len(lines) != _DUE * (_INSTANTS - 1):
        raise RuntimeError(f"{len(lines)} slots were fired, not {_DUE * (_INSTANTS - 1)}.")
    stage.clear()
    return [(line.at - line.last) / timedelta(milliseconds=1) for line in lines]


@dataclass(frozen=True)
class _Held:
    start: float
    cpu: float
    rss: int


def _held(stage: Stage) -> _Held:
    began = time.monotonic()
    with _beat(stage, _MANY_WAIT.replace("MANY", str(_HELD - 1))) as process:
        _until(lambda: bool(_fired(stage, "tick")))
        start = time.monotonic() - began
        before, since = process.cpu_times(), time.monotonic()
        time.sleep(_STEADY_SECONDS)
        after, until = process.cpu_times(), time.monotonic()
        used = after.user + after.system - before.user - before.system
        rss = process.memory_info().rss
    stage.clear()
    return _Held(start, used / (until - since), rss)


def _fired(stage: Stage, entry: str) -> list[ledger.LedgerLine]:
    return [line for line in ledger.read(stage.client, stage.namespace, entry) if line.verdict == "fired"]


@contextmanager
def _beat(stage: Stage, entries: str) -> Iterator[psutil.Process]:
    """A beat process of an application with these entries; killed at the end."""
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder:
        schedule = _SCHEDULE.replace("ENTRIES", entries)
        written = (("actors", "ticks", _ACTORS), ("config", "lanes", _LANES), ("config", "schedule", schedule))
        for room, name, text in written:
            (Path(folder) / room).mkdir(exist_ok=True)
            (Path(folder) / room / "__init__.py").touch()
            (Path(folder) / room / f"{name}.py").write_text(text)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FLEET_")},
            "FLEET_REDIS_URL": stage.redis_url,
            "FLEET_NAMESPACE": stage.namespace,
            "FLEET_LOG_FORMAT": "json",
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "fleet", "--app", folder, "beat"]
        log = Path(folder) / "beat.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(command, env=environment, cwd=folder, stdout=sink, stderr=subprocess.STDOUT)
        try:
            yield psutil.Process(process.pid)
            if process.poll() is not None:
                raise RuntimeError(f"The beat ended with {process.returncode}: {log.read_text()[-500:]}")
        finally:
            process.kill()
            process.wait()


def _until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            raise RuntimeError(f"The beat did not fire what it should within {seconds:g} s.")
        time.sleep(0.05)
