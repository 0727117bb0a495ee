"""Work that waits for a model, with nobody watching."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dramatiq import Message

from fleet import Budget, elastic, queue
from fleet.actor import current_message_id

agent_batch = queue("agent_batch")


def run_lost(message: Message[Any], reason: str) -> None:
    from books import agent_runs

    agent_runs.run_lost(message, reason)


@agent_batch.actor(on_lost=run_lost)  # the lane's budget
def prepare_run(run_id: int) -> None:
    """Work out a proposal that a person then approves."""
    from books import agent_runs

    agent_runs.prepare(run_id, token=current_message_id())


def evals_lost(message: Message[Any], reason: str) -> None:
    from books import evals

    evals.evals_lost(message, reason)


@agent_batch.actor(on_lost=evals_lost)  # the lane's budget
def run_evals() -> None:
    """Ask the queued questions whose right answer is known."""
    from books import evals

    elastic.chunk(lambda size: evals.run_evals(size, token=current_message_id()))


@agent_batch.actor(
    budget=Budget(
        soft=timedelta(minutes=2),
        hard=timedelta(minutes=3),
        because="asks no model: one insert a finding of the audit",
    )
)
def promote_findings() -> None:
    """Make an eval of each of the audit's findings."""
    from books import evals

    evals.promote_findings()
