"""What 50 idle queues cost: one process of 8 threads, over 10 s, after 5 s to settle.

The server counts the commands that scripts run as well; scripts called are given apart. CPU is that of the server, its
own idling included, and of the worker.
"""

from __future__ import annotations

import time

from tests.benchmarks.contest import Aim, Claim, Contender, Figures, Pair
from tests.benchmarks.stage import Stage, Worker

_QUEUES = 50
_SETTLE_SECONDS, _SECONDS = 5.0, 10.0  # stock's consumers are at their longest sleep after two
_FIFTH = Aim(ratio=5)


def _spent(stage: Stage, worker: Worker) -> Figures:
    commands = stage.client.info("commandstats")
    server = stage.client.info("cpu")
    return {
        "commands/s": sum(spent["calls"] for name, spent in commands.items() if not name.startswith("cmdstat_info")),
        "scripts/s": commands.get("cmdstat_evalsha", {"calls": 0})["calls"],
        "server CPU ms/s": 1000 * (server["used_cpu_user"] + server["used_cpu_sys"]),
        "worker CPU ms/s": 1000 * worker.cpu(),
    }


def _measure(stage: Stage, contender: Contender) -> Figures:
    with stage.workers(contender, queues=_QUEUES) as (worker,):
        worker.say("go")
        time.sleep(_SETTLE_SECONDS)
        began, before = time.monotonic(), _spent(stage, worker)
        time.sleep(_SECONDS)
        after, took = _spent(stage, worker), time.monotonic() - began
    return {name: (after[name] - before[name]) / took for name in after}


CLAIM = Claim(
    "idle-queues",
    "50 idle queues, 1 process x 8 threads",
    _measure,
    (Pair(aims={"commands/s": _FIFTH, "server CPU ms/s": _FIFTH, "worker CPU ms/s": _FIFTH}),),
)
