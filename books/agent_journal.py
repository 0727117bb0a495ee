"""The steps of an agent's run, each taken once: a stored one is read back instead of being taken again.

A step is stored in one transaction with the renewed lease, so a worker that lost its run stores nothing.

Not guaranteed: that a step whose worker died between doing and storing it was not done twice. Steps read (the books, a
model's answer); what leaves the house is no step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import select

from books.leasing import Hold
from books.models import AgentRun, AgentStep
from fleet import deadline, progress
from fleet.clock import clock
from fleet.storage import session

Output = dict[str, Any]


class Journal:
    """What a held run did so far. `taken` counts the steps that this process took itself."""

    def __init__(self, hold: Hold[AgentRun]) -> None:
        self._hold = hold
        self._number = 0
        self.taken = 0
        with session() as s:
            steps = s.scalars(select(AgentStep).where(AgentStep.run_id == hold.row.id))
            self._stored = {step.number: step for step in steps}

    @property
    def number(self) -> int:
        """How many steps of the run have been gone through."""
        return self._number

    def step(self, kind: str, name: str, given: Output, take: Callable[[str], Output]) -> Output:
        """The next step's output: the stored one, or what `take` (called with the step's number as text) returns.

        Raises `LeaseLost`, and what `take` raises.
        """
        self._number += 1
        stored = self._stored.get(self._number)
        if stored is not None:
            return stored.output
        progress.stage(f"in step {self._number}")
        deadline.check()
        began = clock.monotonic()
        output = take(str(self._number))
        took = round((clock.monotonic() - began) * 1000)
        with session() as s:
            self._hold.renew(s)
            s.add(
                AgentStep(
                    run_id=self._hold.row.id,
                    number=self._number,
                    kind=kind,
                    name=name,
                    input=given,
                    output=output,
                    duration_ms=took,
                    stored_by=self._hold.message,
                )
            )
        self.taken += 1
        return output
