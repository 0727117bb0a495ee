"""Counts messages by outcome, and times and counts running bodies; the metrics themselves stand in `fleet.metrics`."""

from __future__ import annotations

import threading
from typing import Any

from dramatiq import Broker, MessageProxy, Middleware

from fleet import flow, metrics, wire
from fleet.clock import clock
from middleware.outcome import Outcome, outcome, skipped


class Metrics(Middleware):
    """Metrics of a worker process."""

    def __init__(self) -> None:
        self._started = threading.local()

    def before_worker_boot(self, broker: Broker, worker: Any) -> None:
        metrics.begin_worker(worker.consumer_whitelist or broker.get_declared_queues())

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        self._started.at = clock.monotonic()
        metrics.job_running(message.queue_name, +1)
        lag = None if message.options.get(wire.LOST) else flow.start_lag(message, clock.real_now())
        if lag is not None:
            metrics.start_lag(message.queue_name, lag.total_seconds())

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        metrics.job_took(message.queue_name, message.actor_name, clock.monotonic() - self._started.at)
        self._ended(message, outcome(message, exception))

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        self._ended(message, skipped(message))

    def _ended(self, message: MessageProxy, how: Outcome) -> None:
        metrics.job_running(message.queue_name, -1)
        metrics.message_ended(message.queue_name, message.actor_name, how)
