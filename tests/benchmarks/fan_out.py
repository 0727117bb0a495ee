"""Messages a second that one producer sends: `send_many` against stock's `send`, 20,000 of them.

The second claim adds a middleware that overrides both enqueue hooks, to both brokers.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, cast

from dramatiq.broker import Broker
from dramatiq.message import Message
from dramatiq.middleware import Middleware, default_middleware

from fleet.actor import FleetActor
from tests.benchmarks.contest import Claim, Contender, Figures
from tests.benchmarks.jobs import declare
from tests.benchmarks.stage import Stage

_MESSAGES = 20_000


class _Counting(Middleware):
    before = after = 0

    def before_enqueue(self, broker: Broker, message: Message[Any], delay: int | None) -> None:
        self.before += 1

    def after_enqueue(self, broker: Broker, message: Message[Any], delay: int | None) -> None:
        self.after += 1


def _measure(stage: Stage, contender: Contender, *, hooks: bool) -> Figures:
    counting = _Counting()
    middleware = [made() for made in default_middleware] + ([counting] if hooks else [])
    noop = declare(stage.broker(contender.kind, middleware=middleware), "noop")
    noop.send(0)  # connected, and its script loaded
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


CLAIM = Claim("fan-out of 20,000, no enqueue hook", ">= 10x", partial(_measure, hooks=False))
WITH_HOOKS = Claim("fan-out of 20,000, every hook called", ">= 4x", partial(_measure, hooks=True))
