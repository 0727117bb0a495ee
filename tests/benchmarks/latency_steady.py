"""From `send` to the start of the body at 100 messages a second, one process of 8 threads.

Huey, whose threads wait in a blocking read, stands beside as one of the quickest. The first tenth of the
messages does not count.
"""

from __future__ import annotations

import statistics
import time

from tests.benchmarks.contest import HUEY, OURS, STOCK, Aim, Claim, Contender, Figures, Pair
from tests.benchmarks.stage import Stage

_MESSAGES = 800
_APART_SECONDS = 0.01


def _measure(stage: Stage, contender: Contender) -> Figures:
    send = stage.sender(contender, "stamp")
    with stage.workers(contender) as (worker,):
        worker.say("go")
        time.sleep(1.0)
        due = time.monotonic()
        for _ in range(_MESSAGES):
            time.sleep(max(0.0, due - time.monotonic()))
            send(time.monotonic_ns())
            due += _APART_SECONDS
        stage.wait_until_empty(contender)
        latencies = worker.stop()["latencies"][_MESSAGES // 10 :]
    cut = statistics.quantiles(latencies, n=100)
    return {"p50 ms": cut[49], "p99 ms": cut[98]}


CLAIM = Claim(
    "latency-steady",
    "send to start at 100/s",
    _measure,
    (Pair(OURS, STOCK, {"p50 ms": Aim(at_most=1), "p99 ms": Aim(at_most=3)}), Pair(OURS, HUEY)),
)
