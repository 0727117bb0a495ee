"""From `send` to the start of the body, one message into an idle queue at a time.

Messages come 0.4 to 0.7 s apart, long enough for stock's consumer to have backed off to its full second of sleep.
"""

from __future__ import annotations

import random
import statistics
import time

from tests.benchmarks.contest import Claim, Contender, Figures
from tests.benchmarks.jobs import declare
from tests.benchmarks.stage import Stage

_MESSAGES = 20
_WARM_UP_SECONDS = 4.0


def _measure(stage: Stage, contender: Contender) -> Figures:
    pauses = random.Random(7)
    stamp = declare(stage.broker(contender.kind), "stamp")
    with stage.workers(contender.kind) as (worker,):
        worker.say("go")
        time.sleep(_WARM_UP_SECONDS)
        for _ in range(_MESSAGES):
            stamp.send(time.monotonic_ns())
            time.sleep(pauses.uniform(1.0, 1.5))
        stage.wait_until_empty()
        latencies = worker.stop()["latencies"]
    return {"p50 ms": statistics.median(latencies), "max ms": max(latencies)}


CLAIM = Claim("send to start, idle queue", "100x: 3 ms / 15 ms", _measure, higher_is_better=False)
