"""Hands in what a person approved: checked by the model once more, then filed with the tax authority, once.

A run that passed its check is `submitting` in the same transaction that writes its filing down; from then on the filing
(an outside effect) goes its way and takes the run along.

Not guaranteed: that the authority accepts. What it refuses fails readably; what nobody can tell needs a person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

from dramatiq import Message
from sqlalchemy import func, update
from sqlalchemy.orm import Session

from books import agent_runs, clients, outside
from books.leasing import Hold, is_last_attempt
from books.models import AgentRun, EffectKind, EffectStatus, OutsideEffect, RunStatus
from books.outside import Receipt, effects

_RUN_BECOMES = {
    EffectStatus.WAITING: RunStatus.SUBMITTING,
    EffectStatus.DONE: RunStatus.SUBMITTED,
    EffectStatus.REFUSED: RunStatus.FAILED,
    EffectStatus.NOT_SENT: RunStatus.FAILED,
    EffectStatus.NEEDS_REVIEW: RunStatus.NEEDS_REVIEW,
}


class Filing:
    """A run's filing: `subject` is "run 17"."""

    name, askable, gives_up = EffectKind.FILING, True, True

    @contextmanager
    def ready(self, effect: OutsideEffect) -> Iterator[Callable[[], Receipt]]:
        with clients.limited(clients.AUTHORITY):
            yield lambda: clients.authority().send(effect.key, effect.body)

    def ask(self, effect: OutsideEffect) -> Receipt | None:
        return clients.authority().ask(effect.key)

    def unwanted(self, s: Session, effect: OutsideEffect) -> str | None:
        run = s.get_one(AgentRun, _run_id(effect), with_for_update={"read": True})
        return None if run.status == RunStatus.SUBMITTING else f"its run is {run.status}"

    def moved(self, s: Session, effect: OutsideEffect, status: EffectStatus, outcome: str) -> None:
        on_its_way = AgentRun.status.in_((RunStatus.SUBMITTING, RunStatus.NEEDS_REVIEW))
        values = {"status": _RUN_BECOMES[status], "outcome": outcome, "finished_at": func.now()}
        s.execute(update(AgentRun).where(AgentRun.id == _run_id(effect), on_its_way).values(**values))

    def message(self, effect: OutsideEffect) -> tuple[str, tuple[Any, ...]]:
        return "submit_approved_run", (_run_id(effect),)


def submit_approved(run_id: int, token: str) -> None:
    """Check an approved run and have it filed; go on where an earlier message was cut off; do nothing if that was done.

    Raises what the model client raises; `NotTaken`, `Limited` and `Unclear`; `LeaseLost`; `DeadlineExceeded`.
    """
    filing: list[Hold[OutsideEffect]] = []
    agent_runs.check_approved(run_id, token, lambda s, run: filing.extend(_intend(s, run, token)))
    held = filing.pop() if filing else effects.found(EffectKind.FILING, _subject(run_id), token)
    if held is not None:
        last = is_last_attempt()
        outside.carry_out(Filing(), held, park=last, give_up=last)


def submission_lost(message: Message[Any], reason: str) -> None:
    """End the run whose check was cut off; a filing that was cut off is found out about by a janitor."""
    agent_runs.run_lost(message, reason)
    outside.let_go(message, reason)


def _intend(s: Session, run: AgentRun, token: str) -> list[Hold[OutsideEffect]]:
    body = {"reference": _subject(run.id), "customer": run.customer, "return": run.input}
    digest = blake2b(run.idempotency_key.encode(), digest_size=8).hexdigest()
    held = outside.intend(
        s, EffectKind.FILING, _subject(run.id), key=f"filing-{run.id}-{digest}", body=body, token=token
    )
    return [] if held is None else [held]


def _subject(run_id: int) -> str:
    return f"run {run_id}"


def _run_id(effect: OutsideEffect) -> int:
    return int(effect.subject.removeprefix("run "))
