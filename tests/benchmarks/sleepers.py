"""2,000 jobs that sleep 250 ms, in one process of 200 threads: ideally 2.5 s. Warnings are stock's failed acks."""

from __future__ import annotations

import time
from typing import Any, cast

from fleet.actor import FleetActor
from tests.benchmarks.contest import Claim, Contender, Figures
from tests.benchmarks.jobs import declare
from tests.benchmarks.stage import Stage

_JOBS, _THREADS, _SECONDS = 2_000, 200, 0.25


def _measure(stage: Stage, contender: Contender) -> Figures:
    nap = declare(stage.broker("ours"), "nap")
    cast("FleetActor[Any, Any]", nap).send_many((_SECONDS,) for _ in range(_JOBS))
    with stage.workers(contender.kind, threads=_THREADS) as (worker,):
        began = time.monotonic()
        worker.say("go")
        stage.wait_until_empty()
        took = time.monotonic() - began
        warnings = worker.stop()["warnings"]
    return {"seconds": took, "warnings": warnings}


CLAIM = Claim(
    "2,000 sleepers of 250 ms, 1 process x 200 threads",
    "<= 2.7 s, no warnings",
    _measure,
    higher_is_better=False,
)
