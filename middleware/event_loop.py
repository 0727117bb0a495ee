"""Starts Dramatiq's event loop thread in a worker that has async actors; its coroutines run there, under their budgets.

Not guaranteed: that actors which are declared after the start find a loop; declare them at import. Coroutines of one
process share one loop: one that blocks it holds up all.
"""

from __future__ import annotations

from inspect import iscoroutinefunction, unwrap
from typing import Any

from dramatiq import Broker
from dramatiq.asyncio import get_event_loop_thread
from dramatiq.middleware import AsyncIO


class EventLoop(AsyncIO):
    """Stock's middleware, where there is work for it."""

    def before_worker_boot(self, broker: Broker, worker: Any) -> None:
        if any(iscoroutinefunction(unwrap(actor.fn)) for actor in broker.actors.values()):
            super().before_worker_boot(broker, worker)  # type: ignore[no-untyped-call]

    def after_worker_shutdown(self, broker: Broker, worker: Any) -> None:
        if get_event_loop_thread() is not None:
            super().after_worker_shutdown(broker, worker)  # type: ignore[no-untyped-call]
