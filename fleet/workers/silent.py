"""What a janitor does about workers that are gone: those that no supervisor has reaped.

Every supervisor watches every worker and reaps one that was silent for 30 s (`fleet.workers.watch`), so there is
nothing left where one does its work; a pass says that. It does not reckon from clocks either: it looks on itself, for
as long as a worker that was there has not moved, and reaps what was silent for all that time. Where all move that takes
two seconds.

Not guaranteed: stock workers; those are a supervisor's. Nor anybody where `FLEET_LOST_AFTER` is longer than half of
the janitor's budget. On failure whoever is left is found by the next pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta

from fleet import deadline
from fleet.broker import FleetBroker
from fleet.broker.reaper import LOST_AFTER, Reaper, Silent
from fleet.clock import clock
from fleet.janitor import Measured, Stuck
from fleet.workers.verdicts import Verdicts

_LOOK_SECONDS = 1.0


class SilentWorkers:
    """A chore: the workers on record; `queues` are all that a lane serves."""

    def __init__(self, broker: FleetBroker, queues: Sequence[str], *, lost_after: timedelta = LOST_AFTER) -> None:
        self._lost_after = lost_after.total_seconds()
        self._look_seconds = min(_LOOK_SECONDS, self._lost_after / 10)
        self._verdicts = Verdicts(broker, queues)
        self._reaper = Reaper(
            broker.client,
            broker.own_scripts,
            broker.namespace,
            queues,
            lost_after=lost_after,
            isolating=True,
            condemned=self._verdicts.tell,
        )
        self._silent: list[Silent] = []

    def measure(self) -> Measured:
        """Looks on until everybody has moved, has gone, or was silent for long enough.

        Raises what redis-py raises.
        """
        self._silent = self._reaper.silent()
        there = self._reaper.unmoved_since().keys()
        began = clock.monotonic()
        until = began + self._longest()
        while self._unmoved(began) and clock.monotonic() < until:
            time.sleep(self._look_seconds)
            self._silent = [one for one in self._reaper.silent() if one.worker in there]
        left = self._reaper.unmoved_since().keys() & there
        oldest = max((one.silence for one in self._silent), default=None)
        return Measured(len(there), len(self._silent), len(left) - len(self._silent), oldest)

    def _longest(self) -> float:
        """A look that came late begins all silences anew, so twice; within a job half of its budget."""
        left = deadline.remaining()
        return min(2 * self._lost_after, left.total_seconds() / 2 if left is not None else float("inf"))

    def _unmoved(self, began: float) -> set[str]:
        """Who has not moved since the first look, and not yet for so long that it is known to be gone."""
        unmoved = {worker for worker, since in self._reaper.unmoved_since().items() if since <= began}
        return unmoved - {one.worker for one in self._silent}

    def find(self) -> Iterator[Stuck]:
        """One a worker."""
        for one in self._silent:
            yield Stuck(one, f"worker {one.worker}", one.silence, "reaped: what it held returns to its queues")

    def mend(self, stuck: Stuck) -> int:
        """Reap it, unless it has moved or somebody else has. Raises what redis-py raises, and `NotAccepted`."""
        silent: Silent = stuck.key
        if self._reaper.moved(silent):
            return 0
        self._reaper.end(silent)
        self._verdicts.settle()
        return 1
