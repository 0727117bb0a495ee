"""From `send` to the start of the body at 100 messages a second, one process of 8 threads."""

from __future__ import annotations

import statistics
import time

from tests.benchmarks.contest import Claim, Contender, Figures
from tests.benchmarks.jobs import declare
from tests.benchmarks.stage import Stage

_MESSAGES = 800
_APART_SECONDS = 0.01


def _measure(stage: Stage, contender: Contender) -> Figures:
    stamp = declare(stage.broker(contender.kind), "stamp")
    with stage.workers(contender.kind) as (worker,):
        worker.say("go")
        time.sleep(1.0)
        due = time.monotonic()
        for _ in range(_MESSAGES):
            time.sleep(max(0.0, due - time.monotonic()))
            stamp.send(time.monotonic_ns())
            due += _APART_SECONDS
        stage.wait_until_empty()
        latencies = worker.stop()["latencies"][_MESSAGES // 10 :]
    cut = statistics.quantiles(latencies, n=100)
    return {"p50 ms": cut[49], "p99 ms": cut[98]}


CLAIM = Claim("send to start, 100/s", "1 ms / 3 ms", _measure, higher_is_better=False)
