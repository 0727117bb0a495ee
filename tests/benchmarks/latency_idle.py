"""From `send` to the start of the body, one message into an idle queue at a time, one process of 8 threads.

Messages come 1.5 to 2.5 s apart: stock's consumer takes up to two to back off to its full second of sleep. The first,
for which producer and worker connect, does not count.
"""

from __future__ import annotations

import random
import statistics
import time

from tests.benchmarks.contest import Aim, Claim, Contender, Figures, Pair
from tests.benchmarks.stage import Stage

_MESSAGES = 20


def _measure(stage: Stage, contender: Contender) -> Figures:
    pauses = random.Random(7)
    send = stage.sender(contender, "stamp")
    with stage.workers(contender) as (worker,):
        worker.say("go")
        for _ in range(1 + _MESSAGES):
            send(time.monotonic_ns())
            time.sleep(pauses.uniform(1.5, 2.5))
        stage.wait_until_empty(contender)
        latencies = worker.stop()["latencies"][1:]
    return {"p50 ms": statistics.median(latencies), "max ms": max(latencies)}


CLAIM = Claim(
    "latency-idle",
    "send to start, idle queue, one message every 1.5 to 2.5 s",
    _measure,
    (Pair(aims={"p50 ms": Aim(ratio=100, at_most=3), "max ms": Aim(at_most=15)}),),
)
