"""2,000 jobs that sleep 250 ms, in one process of 200 threads: ideally 2.5 s.

Stock's warnings are acknowledgements that failed for want of a connection, each tried again 5 s later. So stock is
measured with 512 connections as well, which is not its default.
"""

from __future__ import annotations

import time
from typing import Any, cast

from fleet.actor import FleetActor
from tests.benchmarks.contest import OURS, STOCK, Aim, Claim, Contender, Figures, Pair
from tests.benchmarks.jobs import declare
from tests.benchmarks.stage import Stage, require_done

_JOBS, _THREADS, _SECONDS = 2_000, 200, 0.25
_STOCK_512 = Contender("stock, 512 connections", "stock", connections=512)


def _measure(stage: Stage, contender: Contender) -> Figures:
    nap = declare(stage.broker(OURS), "nap")
    cast("FleetActor[Any, Any]", nap).send_many((_SECONDS,) for _ in range(_JOBS))
    with stage.workers(contender, threads=_THREADS) as (worker,):
        began = time.monotonic()
        worker.say("go")
        stage.wait_until_empty(contender)
        took = time.monotonic() - began
        said = worker.stop()
    require_done([said], _JOBS)
    return {"seconds": took, "warnings": said["warnings"]}


CLAIM = Claim(
    "sleepers",
    "2,000 sleepers of 250 ms, 1 process x 200 threads",
    _measure,
    (
        Pair(OURS, STOCK, {"seconds": Aim(at_most=2.7), "warnings": Aim(at_most=0)}),
        Pair(OURS, _STOCK_512),
    ),
)
