"""Runs of the agent, their steps, and the audit's findings that become runs."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from books.models.base import Base, shown_as_runs
from fleet.storage.leases import Lease


class RunKind(StrEnum):
    PREPARE = "prepare"  # works out a proposal that a person then approves
    SUBMIT = "submit"  # hands in what a person approved
    EVAL = "eval"  # asks a question again whose right answer is known


class RunStatus(StrEnum):
    QUEUED = "queued"  # waits for its message (prepare) or for the next evals (eval)
    RUNNING = "running"  # a message works on it and holds its lease
    PREPARED = "prepared"  # its proposal waits for a person
    APPROVED = "approved"  # a person said yes; waits for its message
    SUBMITTING = "submitting"  # checked, and being handed in: its outside effect says how far, and moves it on
    SUBMITTED = "submitted"  # handed in, once; the authority said so
    NEEDS_REVIEW = "needs_review"  # nobody can tell whether the authority has it; a person finds out
    PASSED = "passed"  # an eval whose answer was right
    FAILED = "failed"  # ended without a result, or with a wrong one; `outcome` says why


class AgentRun(Lease, Base):
    """One run. `queued_at` is when it last began to wait for a message, in real time."""

    __tablename__ = "agent_runs"
    __table_args__ = (
        *shown_as_runs("agent_runs", "coalesce(finished_at, started_at, queued_at)"),
        Index("ix_agent_runs_evals", "customer", "id", postgresql_where=text("kind = 'eval' AND status = 'queued'")),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    idempotency_key: Mapped[str] = mapped_column(unique=True)
    customer: Mapped[str]
    queued_at: Mapped[datetime] = mapped_column(server_default=func.now())
    input: Mapped[dict[str, Any]]
    result: Mapped[dict[str, Any] | None]


class AgentStep(Base):
    """A step that was taken and is not taken again for the same input; `kind` is `model` or `tool`.

    `input_digest` is of all that the step depends on, `input` what of it is kept to be read. `actor` took it, and in a
    step of the model `model` answered. The engine measures steps by the view `fleet_steps` over this table.
    """

    __tablename__ = "agent_steps"
    __table_args__ = (UniqueConstraint("run_id", "number", "input_digest"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("agent_runs.id"))
    number: Mapped[int]
    kind: Mapped[str]
    name: Mapped[str]
    input: Mapped[dict[str, Any]]
    input_digest: Mapped[str]
    output: Mapped[dict[str, Any]]
    duration_ms: Mapped[int]
    actor: Mapped[str | None]
    model: Mapped[str | None]
    stored_by: Mapped[str]
    stored_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Finding(Base):
    """Something the nightly audit saw, once a (kind, subject); promoted when an eval run was made of it."""

    __tablename__ = "findings"
    __table_args__ = (UniqueConstraint("kind", "subject"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    subject: Mapped[str]
    message: Mapped[str]
    found_at: Mapped[datetime]
    promoted_at: Mapped[datetime | None]
