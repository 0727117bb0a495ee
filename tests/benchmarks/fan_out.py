"""Messages a second that one producer sends: `send_many` against stock's `send`, 20,000 of them.

Two lines have a middleware that overrides both enqueue hooks, on both brokers. Each is measured on whatever CPUs the
system chooses, and with producer and server on one: a round trip takes half as long there, which is all that stock's
`send` waits for, so half the ratio is aimed at.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

from dramatiq.broker import Broker
from dramatiq.message import Message
from dramatiq.middleware import Middleware, default_middleware

from fleet.actor import FleetActor
from tests.benchmarks.contest import Aim, Claim, Contender, Figures, Pair
from tests.benchmarks.jobs import declare
from tests.benchmarks.stage import Stage

_MESSAGES = 20_000


class _Counting(Middleware):
    before = after = 0

    def before_enqueue(self, broker: Broker, message: Message[Any], delay: int | None) -> None:
        self.before += 1

    def after_enqueue(self, broker: Broker, message: Message[Any], delay: int | None) -> None:
        self.after += 1


def _measure(stage: Stage, contender: Contender, *, hooks: bool, pinned: bool) -> Figures:
    counting = _Counting()
    middleware = [made() for made in default_middleware] + ([counting] if hooks else [])
    noop = declare(stage.broker(contender, middleware=middleware), "noop")
    noop.send(0)  # connected, and its script loaded
    with stage.one_cpu() if pinned else nullcontext():
        began = time.monotonic()
        if contender.kind == "ours":
            cast("FleetActor[Any, Any]", noop).send_many((number,) for number in range(_MESSAGES))
        else:
            for number in range(_MESSAGES):
                noop.send(number)
        rate = _MESSAGES / (time.monotonic() - began)
    if hooks and (counting.before, counting.after) != (_MESSAGES + 1, _MESSAGES + 1):
        raise RuntimeError(f"hooks were called {counting.before} and {counting.after} times")
    return {"messages/s": rate}


def _claim(name: str, work: str, ratio: float, *, hooks: bool, pinned: bool) -> Claim:
    return Claim(
        name,
        f"fan-out of 20,000, {work}",
        partial(_measure, hooks=hooks, pinned=pinned),
        (Pair(aims={"messages/s": Aim(ratio=ratio)}),),
        higher_is_better=True,
        pins_server=pinned,
    )


CLAIMS = (
    _claim("fan-out", "no enqueue hook", 10, hooks=False, pinned=False),
    _claim("fan-out-pinned", "no enqueue hook, on one CPU with the server", 5, hooks=False, pinned=True),
    _claim("fan-out-hooks", "every hook called", 4, hooks=True, pinned=False),
    _claim("fan-out-hooks-pinned", "every hook called, on one CPU with the server", 2, hooks=True, pinned=True),
)
