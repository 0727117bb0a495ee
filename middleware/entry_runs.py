"""Writes down each run of an entry's messages (`fleet.entry_runs`): for the timeline, the plan of a night, `explain`.

A message of an entry that was refused for good is written too, as a run that ended as it began; one that waits for its
slot and comes again is not, since it asks every few seconds. What stands for a lost job is no run of its entry.

Not guaranteed: a line for each. While Redis does not answer nothing is written, which is said and costs the job nothing
but the wait for the answer.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

import redis
from dramatiq import Broker, MessageProxy, Middleware
from dramatiq.middleware import Shutdown

from fleet import wire
from fleet.broker import FleetBroker
from fleet.budgets import budget_of
from fleet.clock import clock
from fleet.entry_runs import RETURNED, Run, write
from fleet.logs import get_logger
from middleware.known_entry import LONGEST_NAME
from middleware.outcome import outcome, skipped

log = get_logger(__name__)

_WITHOUT_BUDGET = timedelta(hours=1)  # outside every lane


class _Running(threading.local):
    run: Run | None = None


class EntryRuns(Middleware):
    """Records of runs, from a worker process."""

    def __init__(self) -> None:
        self._running = _Running()

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        self._running.run = run = _run(broker, message)
        if run is not None and run.chain is None:
            _write(broker, run)

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        # A shutdown says nothing of the job: it goes back, and runs again.
        self._end(broker, RETURNED if isinstance(exception, Shutdown) else outcome(message, exception))

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        how = skipped(message)
        if self._running.run is not None:  # it had begun, and its process retires
            self._end(broker, RETURNED if how == "skipped" else how)
        elif how != "waits":
            self._running.run = _run(broker, message)
            self._end(broker, how)

    def _end(self, broker: Broker, how: str) -> None:
        run, self._running.run = self._running.run, None
        if run is not None:
            ended = clock.now() if how not in ("expired", "discarded", "skipped") else run.started
            _write(broker, replace(run, ended=ended, outcome=how))


def _run(broker: Broker, message: MessageProxy) -> Run | None:
    """A run of an entry's message that begins now; None for any other message."""
    options = message.options
    entry, slot, chain, retries = (options.get(name) for name in (wire.ENTRY, wire.SLOT, wire.CHAIN, "retries"))
    if not isinstance(entry, str) or not 0 < len(entry) <= LONGEST_NAME or wire.LOST in options:
        return None
    assert isinstance(broker, FleetBroker)
    held, now = budget_of(broker, message), clock.now()
    hard = held.budget.hard if held else _WITHOUT_BUDGET
    return Run(
        entry,
        uuid.uuid4().hex[:16],
        str(message.message_id),
        wire.instant(slot),
        wire.count(retries) + 1,
        broker.broker_id,
        now,
        now + hard * clock.rate,
        chain=chain if isinstance(chain, int) else None,
    )


def _write(broker: Broker, run: Run) -> None:
    assert isinstance(broker, FleetBroker)
    try:
        write(broker, run)
    except redis.RedisError as error:
        log.warning("entry_run_not_recorded", entry=run.entry, message_id=run.message_id, error=str(error))
