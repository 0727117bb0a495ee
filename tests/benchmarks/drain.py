"""Messages a second that waiting no-ops are done in, from the start of the workers until the last is acknowledged.

Stock's best is not its default: it is measured with `dramatiq_queue_prefetch=256` as well.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, cast

from fleet.actor import FleetActor
from tests.benchmarks.contest import OURS, OURS_256, STOCK, STOCK_256, Claim, Contender, Figures
from tests.benchmarks.jobs import declare
from tests.benchmarks.stage import Stage


def _measure(stage: Stage, contender: Contender, *, messages: int, threads: int) -> Figures:
    noop = declare(stage.broker("ours"), "noop")
    cast("FleetActor[Any, Any]", noop).send_many((number,) for number in range(messages))
    asked = {"processes": 2, "threads": threads, "prefetch": contender.prefetch}
    with stage.workers(contender.kind, **asked) as workers:
        began = time.monotonic()
        for worker in workers:
            worker.say("go")
        stage.wait_until_empty()
        took = time.monotonic() - began
        cpu = sum(worker.stop()["cpu"] for worker in workers)
    return {"messages/s": messages / took, "messages/CPU s": messages / cpu}


CLAIM = Claim(
    "drain of 20,000 no-ops, 2 processes x 8 threads",
    ">= 5x, >= 2.5x prefetch 256",
    partial(_measure, messages=20_000, threads=8),
    compared=((OURS, STOCK), (OURS_256, STOCK_256)),
)

_OURS_1, _STOCK_1 = Contender("ours", "ours", 1), Contender("stock", "stock", 1)
ONE_BY_ONE = Claim(
    "drain of 3,000 no-ops, 2 processes x 1 thread, prefetch 1",
    ">= 8x",
    partial(_measure, messages=3_000, threads=1),
    compared=((_OURS_1, _STOCK_1),),
)
