"""README's promises that are figures, beside stock Dramatiq: one lane flooded, a worker killed, a scheduler killed.

Each is measured as `make bench-peers` measures it of the others, by the same code, in processes of their own. A worker
of ours stands here without the supervisor that sees a child die: a SIGKILL is the end of a host.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.contest import STOCK, Aim, Claim, Contender, Figures, Pair
from tests.benchmarks.peers import stage as peers
from tests.benchmarks.peers.measures import MEASURES, Measure
from tests.benchmarks.stage import Stage

_AIMS = {
    "flood": {"p99 ms": Aim(ratio=1)},
    "kill": {"seconds": Aim(ratio=1), "not run again": Aim(at_most=0)},
    "schedulers": {"doubled": Aim(at_most=0)},
}


_ONE_POOL = Contender("stock, one pool", "stock")
_STOCK = {STOCK: peers.STOCK, _ONE_POOL: peers.STOCK_ONE_POOL}


def _pairs(name: str) -> tuple[Pair, ...]:
    beside = Pair(aims=_AIMS[name])
    return (beside, Pair(other=_ONE_POOL)) if name == "flood" else (beside,)


def _measured(measure: Measure) -> Callable[[Stage, Contender], Figures]:
    def once(stage: Stage, contender: Contender) -> Figures:
        peer = peers.OURS if contender.kind == "ours" else _STOCK[contender]
        with (
            tempfile.TemporaryDirectory(prefix="fleet-promises-") as folder,
            peers.running(peer, stage.redis_url, Path(folder)) as run,
        ):
            seen = measure.measure(run)
        return {f"{name} ms" if measure.unit == "ms" else name: value for name, value in seen.items()}

    return once


CLAIMS = tuple(
    Claim(one.name, one.work, _measured(one), _pairs(one.name), once=one.once) for one in MEASURES if one.name in _AIMS
)
