"""Questions whose right answer is known, asked again at night: does the model still get them right?

An eval is a run of kind `eval` whose input is `{"text", "choices", "expected"}`. The audit's findings become evals too
("which check saw this?"), once each: the run's idempotency key is made of the finding.

Not guaranteed: that all are asked in one night; `EVALS_A_PASS` are, oldest first. On failure of one the others go on;
where the model was busy or away the pass is repeated for what it left, as often as its actor is tried.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dramatiq import Message
from sqlalchemy import or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from books import clients
from books.auditing import CHECKS
from books.leasing import end_lost, take
from books.model import ModelUnavailable
from books.models import AgentRun, Finding, RunKind, RunStatus
from fleet.clock import clock
from fleet.errors import RetryLater
from fleet.logs import get_logger
from fleet.storage import leases, session
from fleet.storage.keyset import Keyset
from fleet.sweep import SweepResult, sweep

log = get_logger(__name__)

EVALS_A_PASS = 100  # what the budget of `run_evals` holds at the model's mean answer
MODEL_AWAY = timedelta(minutes=1)  # a night duration; a provider that restarts is back by then


def run_evals(token: str) -> SweepResult:
    """Ask every queued question, and those that this very message was asking when its worker died.

    Raises `RetryLater` when questions were left because the model was busy or away.
    """
    own_or_lapsed = or_(AgentRun.lease_message == token, leases.lapsed(AgentRun))
    waiting = or_(AgentRun.status == RunStatus.QUEUED, (AgentRun.status == RunStatus.RUNNING) & own_or_lapsed)
    oldest_first = select(AgentRun.id).where(AgentRun.kind == RunKind.EVAL, waiting).order_by(AgentRun.id)
    with session() as s:
        ids = s.scalars(oldest_first.limit(EVALS_A_PASS)).all()
    waits: list[timedelta] = []

    def replay(run_id: int) -> None:
        try:
            _replay(run_id, token)
        except RetryLater as busy:
            waits.append(busy.after)
            raise
        except ModelUnavailable:
            waits.append(MODEL_AWAY)
            raise

    result = sweep("run_evals", ids, replay)
    if waits:
        raise RetryLater(f"{len(waits)} of {len(ids)} questions were left for a busy model", max(waits))
    return result


def _replay(run_id: int, token: str) -> None:
    hold = take(AgentRun, run_id, message=token, claimable=(RunStatus.QUEUED,))
    if hold is None:
        return
    with hold.to_the_end(back_to=RunStatus.QUEUED, failed=RunStatus.FAILED):
        asked = hold.row.input
        answer = clients.model().categorize(
            asked["text"], 0, "EUR", asked["choices"], run=f"agent_run:{run_id}", step="eval"
        )
        right = answer == asked["expected"]
        outcome = "right" if right else f"answered {answer!r}, expected {asked['expected']!r}"
        hold.finish(RunStatus.PASSED if right else RunStatus.FAILED, outcome, result={"answer": answer})


def evals_lost(message: Message[Any], reason: str) -> None:
    """End what a message that was cut off was asking; the questions it did not reach wait for the next evals."""
    asking = select(AgentRun.id).where(AgentRun.kind == RunKind.EVAL, AgentRun.lease_message == message.message_id)
    with session() as s:
        for run_id in s.scalars(asking.where(AgentRun.status == RunStatus.RUNNING)).all():
            end_lost(s, AgentRun, run_id, message, reason, failed=RunStatus.FAILED)


def promote_findings() -> SweepResult:
    """Make an eval run of each finding that is none yet; one of which none can be made stays, and the others go on."""
    new = select(Finding).where(Finding.promoted_at.is_(None))
    return sweep("promote_findings", Keyset(new, by=Finding.id, locked=True), _promote, key=lambda finding: finding.id)


def _promote(s: Session, finding: Finding) -> None:
    run = {
        "kind": RunKind.EVAL,
        "status": RunStatus.QUEUED,
        "idempotency_key": f"finding:{finding.kind}:{finding.subject}",
        "customer": "audit",
        "input": {"text": finding.message, "choices": list(CHECKS), "expected": finding.kind},
    }
    s.execute(insert(AgentRun).values(run).on_conflict_do_nothing(index_elements=[AgentRun.idempotency_key]))
    finding.promoted_at = clock.now()
