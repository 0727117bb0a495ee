"""The steps of an agent's run, each taken once: a stored one is read back instead of being taken again.

A step is known by its number in the run and the digest of all that it was asked. One that was stored for another input
(the prompt changed with a deploy, while the run waited for its next attempt) answers another question: it is left as
it is, the step is taken anew, and one line says so. A step is stored in one transaction with the renewed lease, so a
worker that lost its run stores nothing.

Not guaranteed: that a step whose worker died between doing and storing it was not done twice, or paid for twice. Steps
read (the books, a model's answer); what leaves the house is no step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import select

from books.digests import digest
from books.leasing import Hold
from books.models import AgentRun, AgentStep
from fleet import deadline, progress
from fleet.actor import current_message
from fleet.clock import clock
from fleet.logs import get_logger
from fleet.storage import session

log = get_logger(__name__)

Output = dict[str, Any]


class Journal:
    """What a held run did so far. `taken` counts the steps that this process took itself."""

    def __init__(self, hold: Hold[AgentRun]) -> None:
        self._hold = hold
        self._number = 0
        self.taken = 0
        with session() as s:
            steps = s.scalars(select(AgentStep).where(AgentStep.run_id == hold.row.id))
            self._stored = {(step.number, step.input_digest): step for step in steps}
        self._numbers = {number for number, _ in self._stored}

    @property
    def number(self) -> int:
        """How many steps of the run have been gone through."""
        return self._number

    def step(
        self,
        kind: str,
        name: str,
        asked: object,
        given: Output,
        take: Callable[[str], Output],
        *,
        model: str | None = None,
    ) -> Output:
        """The next step's output: the stored one, or what `take` (called with the step's number as text) returns.

        `asked` is all that the output depends on, as JSON would have it; `given` is what of it is kept for a person.
        `model` is the one that answers; it is kept to measure it, and is no part of what was asked.
        Raises `LeaseLost`, and what `take` raises.
        """
        self._number += 1
        input_digest = digest([kind, name, asked])
        stored = self._stored.get((self._number, input_digest))
        if stored is not None:
            return stored.output
        if self._number in self._numbers:
            log.warning("step_input_changed", run=self._hold.row.id, step=self._number, kind=kind, step_name=name)
        progress.stage(f"in step {self._number}")
        deadline.check()
        began = clock.monotonic()
        output = take(str(self._number))
        took = round((clock.monotonic() - began) * 1000)
        step = AgentStep(kind=kind, name=name, input=given, input_digest=input_digest, output=output, model=model)
        self._store(step, took)
        self.taken += 1
        return output

    def _store(self, step: AgentStep, took_ms: int) -> None:
        """Keep a step that was taken, if the run is still this delivery's; raises `LeaseLost`."""
        message = current_message()
        step.run_id, step.number, step.duration_ms = self._hold.row.id, self._number, took_ms
        step.actor = message.actor_name if message is not None else None
        step.stored_by = self._hold.message
        with session() as s:
            self._hold.renew(s)
            s.add(step)
