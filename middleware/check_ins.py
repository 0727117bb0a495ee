"""Tells Sentry's cron monitors when a slot's job begins and ends; what is sent, and when, stands in `fleet.check_ins`.

The supervisor sends what a worker process cannot: the errors of jobs that were taken away or died with their process.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

from dramatiq import Broker, MessageProxy, Middleware
from dramatiq.middleware import Shutdown

from fleet import wire
from fleet.broker import FleetBroker
from fleet.check_ins import CheckIns
from fleet.clock import clock
from middleware.outcome import outcome, skipped


class CronCheckIns(Middleware):
    """Check-ins of a worker process."""

    def __init__(self) -> None:
        self._check_ins: CheckIns | None = None
        self._began = threading.local()

    def before_worker_boot(self, broker: Broker, worker: Any) -> None:
        from fleet.app import settings

        assert isinstance(broker, FleetBroker)
        self._check_ins = CheckIns(broker)
        self._check_ins.begin(settings())

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        if self._check_ins is not None and self._check_ins.of_slot(message):
            self._began.at = clock.monotonic()
            self._check_ins.send(message, "in_progress")

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        if self._check_ins is None or not self._check_ins.of_slot(message):
            return
        ran = timedelta(seconds=clock.monotonic() - getattr(self._began, "at", clock.monotonic()))
        if isinstance(exception, Shutdown):
            self._check_ins.interrupted(message, ran)
        elif (how := outcome(message, exception)) != "retried":
            self._check_ins.send(message, "ok" if how == "done" else "error", ran)

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        """A repetition that came too late ends what an earlier run began."""
        again = wire.count(message.options.get("retries")) > 0
        if self._check_ins is not None and again and skipped(message) == "expired":
            self._check_ins.send(message, "error")
