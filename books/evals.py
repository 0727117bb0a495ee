"""Questions whose right answer is known, asked again at night: does the model still get them right?

An eval is a run of kind `eval` whose input is `{"text", "choices", "expected"}`. The audit's findings become evals too
("which check saw this?"), once each: the run's idempotency key is made of the finding.

They are a backlog that chunks drain (`books.chunks`), round-robin by customer, each customer's oldest first.

Not guaranteed: that all are asked in one night. On failure of one the others go on.
"""

from __future__ import annotations

from typing import Any

from dramatiq import Message
from sqlalchemy import literal, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from books import clients
from books.auditing import CHECKS
from books.chunks import MOST_TRIES, Backlog, Chunk, passes
from books.leasing import Hold, end_lost
from books.models import AgentRun, Finding, RunKind, RunStatus
from fleet.clock import clock
from fleet.elastic import Did
from fleet.logs import get_logger
from fleet.storage import session
from fleet.storage.keyset import Keyset
from fleet.sweep import SweepResult, sweep

log = get_logger(__name__)

EVALS = Backlog(
    "run_evals",
    AgentRun,
    (AgentRun.kind == literal(RunKind.EVAL, literal_execute=True))
    & (AgentRun.status == literal(RunStatus.QUEUED, literal_execute=True)),
)


def run_evals(size: int, token: str) -> Did:
    """Ask up to `size` queued questions, and first one that this very message was asking when its worker died.

    Says whether another chunk has anything to do now, and how many rows this one did. Raises what the database raises.
    """
    return Chunk(EVALS.name, size).do(lambda: EVALS.next_row(token), _replay)


def backlog() -> int:
    """How many questions wait."""
    return EVALS.count()


def _replay(hold: Hold[AgentRun]) -> None:
    with hold.tried(back_to=RunStatus.QUEUED, failed=RunStatus.FAILED, most=MOST_TRIES, passes=passes):
        asked = hold.row.input
        with clients.limited(clients.MODEL):
            answer = clients.model().categorize(
                asked["text"], 0, "EUR", asked["choices"], run=f"agent_run:{hold.row.id}", step="eval"
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
