"""Counts what flows through a worker process: starts, how late they were, ends, and what actors took (`fleet.flow`).

Not guaranteed: a start and an end for each delivery. What its process was killed for has no end, and one that goes back
since its process retires counts as a start.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from dramatiq import Broker, MessageProxy, Middleware

from fleet import flow, wire
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.workers.ready import Ready
from middleware.known_entry import is_known
from middleware.outcome import outcome, skipped


class FlowCounts(Middleware):
    """Flow of a worker process."""

    def __init__(self) -> None:
        self._flow: flow.Flow | None = None
        self._began = threading.local()

    def before_worker_boot(self, broker: Broker, worker: Any) -> None:
        assert isinstance(broker, FleetBroker)
        ready = worker.work_queue
        waiting = (lambda: (broker.broker_id, ready.oldest_due())) if isinstance(ready, Ready) else None
        self._flow = flow.Flow(broker.client, broker.namespace, waiting)
        self._flow.start()
        flow.activate(self._flow)

    def after_worker_shutdown(self, broker: Broker, worker: Any) -> None:
        if self._flow is not None:
            self._flow.stop()
        self._flow = None
        flow.activate(None)

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        if self._flow is None:
            return
        lost = wire.LOST in message.options  # stands for a job that began long ago
        self._flow.started(message.queue_name, None if lost else flow.lag_ms(message, wire.to_ms(clock.real_now())))
        self._began.wall, self._began.cpu = clock.monotonic(), time.thread_time()

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        began, self._began.wall = getattr(self._began, "wall", None), None
        if self._flow is None or began is None:
            return
        self._flow.ran(
            message.queue_name,
            message.actor_name,
            wall=clock.monotonic() - began,
            cpu=time.thread_time() - self._began.cpu,
            ended=outcome(message, exception) != "retried",
        )

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        began, self._began.wall = getattr(self._began, "wall", None), None
        how = skipped(message)
        if self._flow is None or began is not None or how == "waits":
            return
        figures = [f"q:{message.queue_name}:ended"]
        if how == "expired" and (figure := _of_slot(broker, message)):
            figures.append(figure)
        self._flow.add(*figures)


def _of_slot(broker: Broker, message: MessageProxy) -> str | None:
    """What expired: an entry's slot, or a message that a slot's sent on; None where no entry here has that name.

    A chain's ends with its night, and its rows wait for the next: no slot was missed, also where a slot's message had
    begun it. What a person fired was none either.
    """
    if wire.CHAIN in message.options:
        return None
    entry, origin = message.options.get(wire.ENTRY), message.options.get(wire.ORIGIN)
    if isinstance(entry, str) and wire.SLOT in message.options:
        return f"e:{entry}:expired" if is_known(broker, entry) else None
    sender = origin.partition("@")[0] if isinstance(origin, str) else None
    return f"e:{sender}:expired_rest" if is_known(broker, sender) else None
