"""What 50 idle queues cost: one process of 8 threads, over 10 s, after 5 s to settle.

Redis counts the commands that scripts run as well; scripts called are given apart. CPU is Redis's own.
"""

from __future__ import annotations

import time

from tests.benchmarks.contest import Claim, Contender, Figures
from tests.benchmarks.stage import Stage

_QUEUES = 50
_SETTLE_SECONDS, _SECONDS = 5.0, 10.0


def _counts(stage: Stage) -> tuple[float, float, float]:
    commands = stage.client.info("commandstats")
    calls = sum(spent["calls"] for spent in commands.values())
    scripts = commands.get("cmdstat_evalsha", {"calls": 0})["calls"]
    cpu = stage.client.info("cpu")
    return calls, scripts, cpu["used_cpu_user"] + cpu["used_cpu_sys"]


def _measure(stage: Stage, contender: Contender) -> Figures:
    with stage.workers(contender.kind, queues=_QUEUES) as (worker,):
        worker.say("go")
        time.sleep(_SETTLE_SECONDS)
        began, before = time.monotonic(), _counts(stage)
        time.sleep(_SECONDS)
        after, took = _counts(stage), time.monotonic() - began
        worker_cpu = worker.stop()["cpu"] / (took + _SETTLE_SECONDS)
    calls, scripts, cpu = ((late - early) / took for late, early in zip(after, before, strict=True))
    return {
        "commands/s": calls,
        "scripts/s": scripts,
        "Redis CPU ms/s": cpu * 1000,
        "worker CPU ms/s": worker_cpu * 1000,
    }


CLAIM = Claim("50 idle queues", "a fifth", _measure, higher_is_better=False)
