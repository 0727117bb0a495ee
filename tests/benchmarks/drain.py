"""Messages a second that waiting no-ops are done in, from the start of the workers until the last is acknowledged.

Stock's best is not its default: at 8 threads it is measured with `dramatiq_queue_prefetch=256` as well, beside ours at
the same; huey, which has no prefetch, beside ours at both. With one thread and prefetch 1 stock sleeps after each
message; at its default of two it sleeps half as often, and stands beside the same figure of ours.

Ours has Dramatiq's default middleware, as stock has. A worker of `fleet work` always has more of them (deadlines,
metrics, flow, retries by lane, traces): that is measured beside stock's default too, and has no aim of its own.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, cast

from fleet.actor import FleetActor
from tests.benchmarks.contest import (
    HUEY,
    OURS,
    OURS_256,
    OURS_WHOLE,
    STOCK,
    STOCK_256,
    Aim,
    Claim,
    Contender,
    Figures,
    Pair,
)
from tests.benchmarks.jobs import declare
from tests.benchmarks.stage import Stage, require_done


def _measure(stage: Stage, contender: Contender, *, messages: int, threads: int) -> Figures:
    if contender.kind == "huey":
        send = stage.sender(contender, "noop")
        for number in range(messages):
            send(number)
    else:
        writer = contender if contender.whole else OURS
        noop = declare(stage.broker(writer), "noop")  # what stock would have written, in less time
        cast("FleetActor[Any, Any]", noop).send_many((number,) for number in range(messages))
    with stage.workers(contender, processes=2, threads=threads) as workers:
        began = time.monotonic()
        for worker in workers:
            worker.say("go")
        stage.wait_until_empty(contender)
        took = time.monotonic() - began
        cpu = sum(worker.cpu() for worker in workers)
        require_done([worker.stop() for worker in workers], messages)
    return {"messages/s": messages / took, "messages/CPU s": messages / cpu}


CLAIM = Claim(
    "drain",
    "drain of 20,000 no-ops, 2 processes x 8 threads",
    partial(_measure, messages=20_000, threads=8),
    (
        Pair(OURS, STOCK, {"messages/s": Aim(ratio=5)}),
        Pair(OURS_256, STOCK_256, {"messages/s": Aim(ratio=2.5)}),
        Pair(OURS_WHOLE, STOCK),
        Pair(OURS, HUEY, {"messages/s": Aim(ratio=3)}),
        Pair(OURS_256, HUEY, {"messages/s": Aim(ratio=3)}),
    ),
    higher_is_better=True,
)

_OURS_1, _STOCK_1 = Contender("ours, prefetch 1", "ours", 1), Contender("stock, prefetch 1", "stock", 1)
_STOCK_2 = Contender("stock, its default of 2", "stock")
ONE_BY_ONE = Claim(
    "drain-one-by-one",
    "drain of 3,000 no-ops, 2 processes x 1 thread, prefetch 1",
    partial(_measure, messages=3_000, threads=1),
    (
        Pair(_OURS_1, _STOCK_1, {"messages/s": Aim(ratio=8)}),
        Pair(_OURS_1, _STOCK_2, {"messages/s": Aim(ratio=8)}),
    ),
    higher_is_better=True,
)
