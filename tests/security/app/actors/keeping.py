"""What housekeeping does in every fleet."""

from __future__ import annotations

from fleet import health, janitor, queue
from fleet.app import process_broker, settings
from fleet.broker.trimming import OldLetters
from fleet.workers.silent import SilentWorkers

keeping = queue("keeping")


@keeping.actor
def keep() -> None:
    """Judge the queues, reap, trim."""
    broker = process_broker()
    health.look(broker, "housekeeping")
    silent = SilentWorkers(broker, sorted(broker.lanes), lost_after=settings().lost_after)
    janitor.run("keep", [silent, OldLetters(broker)])
