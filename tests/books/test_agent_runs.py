"""A run takes each step once, however often it comes, and is handed in once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from dramatiq import Message
from dramatiq.broker import MessageProxy
from dramatiq.middleware import CurrentMessage
from sqlalchemy import select, text
from structlog.testing import capture_logs

from books import agent_runs, evals
from books.model import ModelUnavailable
from books.models import AgentRun, AgentStep, Finding, RunKind, RunStatus
from fleet.app import process_broker
from fleet.clock import clock
from fleet.steps import by_called as steps_by_called
from fleet.storage import session
from fleet.sweep import SweepResult
from tests.books.cut import cut


def run(kind: RunKind, status: RunStatus, given: dict[str, Any] | None = None) -> int:
    with session() as s:
        row = AgentRun(
            kind=kind, status=status, idempotency_key=str(uuid4()), customer="c", input=given or {"task": "t"}
        )
        s.add(row)
        s.flush()
        return row.id


def now(row: int) -> AgentRun:
    with session() as s:
        return s.get_one(AgentRun, row)


def steps(row: int) -> list[tuple[str, str]]:
    with session() as s:
        found = select(AgentStep).where(AgentStep.run_id == row).order_by(AgentStep.number)
        return [(step.kind, step.name) for step in s.scalars(found)]


def completion(content: str | None, *tools: str) -> tuple[int, Any]:
    calls = [
        {"id": f"call-{name}", "type": "function", "function": {"name": name, "arguments": "{}"}} for name in tools
    ]
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}
    return 200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


BUSY = (503, {"error": {"message": "overloaded"}})


def scripted(world: Any, *answers: tuple[int, Any]) -> None:
    left = list(answers)
    world.reply = lambda *_: left.pop(0)


def test_a_run_asks_looks_up_and_proposes(migrated: object, world: Any) -> None:
    row = run(RunKind.PREPARE, RunStatus.QUEUED)
    scripted(world, completion(None, "account_balances", "invoice_totals"), completion("Pay the VAT."))
    agent_runs.prepare(row, token="m1")
    assert (now(row).status, now(row).result) == (RunStatus.PREPARED, {"proposal": "Pay the VAT."})
    assert steps(row) == [
        ("model", "turn"),
        ("tool", "account_balances"),
        ("tool", "invoice_totals"),
        ("model", "turn"),
    ]
    assert [message["role"] for message in world.asked[-1][2]["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
    ]


def test_steps_are_measured_where_the_engine_looks_for_them(migrated: object, world: Any) -> None:
    row = run(RunKind.PREPARE, RunStatus.QUEUED)
    scripted(world, completion(None, "account_balances"), completion("Pay the VAT."))
    message = Message("agent_batch", "prepare_run", (row,), {}, {})
    working, proxy = CurrentMessage(), MessageProxy(message)
    working.before_process_message(process_broker(), proxy)
    agent_runs.prepare(row, token="measured")
    working.after_process_message(process_broker(), proxy)
    with session() as s:
        found = [calls for calls in steps_by_called(s.connection(), timedelta(days=7)) if calls.actor]
    assert [(calls.actor, calls.kind, calls.called, calls.count) for calls in found] == [
        ("prepare_run", "model", "gpt-4.1-mini", 2),
        ("prepare_run", "tool", "account_balances", 1),
    ]


def test_a_run_that_comes_again_goes_on_behind_its_stored_steps(migrated: object, world: Any) -> None:
    row = run(RunKind.PREPARE, RunStatus.QUEUED)
    scripted(world, completion(None, "uncategorized_transactions"), BUSY)
    with pytest.raises(ModelUnavailable):
        agent_runs.prepare(row, token="m1")
    assert (now(row).status, len(steps(row))) == (RunStatus.QUEUED, 2)
    scripted(world, completion("Done."))
    agent_runs.prepare(row, token="m1")
    assert (now(row).status, len(steps(row)), world.count("chat")) == (RunStatus.PREPARED, 3, 3)
    agent_runs.prepare(row, token="m2")
    assert world.count("chat") == 3


def test_an_answer_that_comes_back_with_its_keys_in_another_order_makes_no_other_question(
    migrated: object, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals = {"draft": {"invoices": 1}, "due": {"invoices": 1}}  # JSONB puts the shorter key first
    monkeypatch.setattr(agent_runs.agent_tools, "call", lambda *_: dict(totals))
    row = run(RunKind.PREPARE, RunStatus.QUEUED)
    scripted(world, completion(None, "invoice_totals"), completion(None, "account_balances"), BUSY)
    with pytest.raises(ModelUnavailable):
        agent_runs.prepare(row, token="m1")
    scripted(world, completion("Done."))
    with capture_logs() as lines:
        agent_runs.prepare(row, token="m1")
    assert [line for line in lines if line["event"] == "step_input_changed"] == []
    assert len(steps(row)) == 5


def test_a_stored_answer_is_not_taken_for_another_question(
    migrated: object, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = run(RunKind.PREPARE, RunStatus.QUEUED)
    scripted(world, completion(None, "uncategorized_transactions"), BUSY)
    with pytest.raises(ModelUnavailable):
        agent_runs.prepare(row, token="m1")
    monkeypatch.setattr(agent_runs, "_PREPARE", "You are a new release.")
    scripted(world, completion(None, "uncategorized_transactions"), completion("Done."))
    with capture_logs() as lines:
        agent_runs.prepare(row, token="m1")
    assert (now(row).status, world.count("chat")) == (RunStatus.PREPARED, 4)
    changed = [(line["step"], line["step_name"]) for line in lines if line["event"] == "step_input_changed"]
    assert changed == [(1, "turn")], "the tool was asked the same, and its answer stands"
    monkeypatch.undo()
    with session() as s:
        kept = s.scalars(select(AgentStep.number).where(AgentStep.run_id == row).order_by(AgentStep.id)).all()
    assert kept == [1, 2, 1, 3]


def test_a_run_that_comes_to_no_answer_fails_readably(migrated: object, world: Any) -> None:
    row = run(RunKind.PREPARE, RunStatus.QUEUED)
    world.reply = lambda *_: completion(None, "account_balances")
    agent_runs.prepare(row, token="m1")
    assert now(row).status == RunStatus.FAILED
    assert "no answer in 8 turns" in (now(row).outcome or "")


def test_an_eval_passes_on_the_right_answer_and_says_the_wrong_one(migrated: object, world: Any) -> None:
    given = {"text": "Strom", "choices": ["Energy", "Rent"]}
    right = run(RunKind.EVAL, RunStatus.QUEUED, given | {"expected": "Energy"})
    wrong = run(RunKind.EVAL, RunStatus.QUEUED, given | {"expected": "Rent"})
    world.reply = lambda *_: completion('{"category": "Energy"}')
    evals.run_evals(20, token="m1")
    assert now(right).status == RunStatus.PASSED
    assert now(wrong).status == RunStatus.FAILED
    assert now(wrong).outcome == "answered 'Energy', expected 'Rent'"


def test_questions_left_for_a_busy_model_wait_and_lose_no_try(migrated: object, world: Any) -> None:
    given = {"text": "Stadtwerke Abschlag", "choices": ["Energy", "Rent"], "expected": "Energy"}
    row = run(RunKind.EVAL, RunStatus.QUEUED, given)
    scripted(world, BUSY, completion('{"category": "Energy"}'))
    assert not evals.run_evals(20, token="m1"), "the chain ends, and is begun again in a minute"
    assert (now(row).status, now(row).attempts) == (RunStatus.QUEUED, 0)
    evals.run_evals(20, token="m1")
    assert now(row).status == RunStatus.PASSED


def test_a_finding_becomes_one_eval_however_often_it_is_promoted(migrated: object) -> None:
    subject = f"account {uuid4()}"
    with session() as s:
        s.add(Finding(kind="not_synced", subject=subject, message="never synced", found_at=clock.now()))
    promoted = SweepResult(1, 0, "done")
    assert evals.promote_findings() == promoted
    with session() as s:
        s.execute(Finding.__table__.update().values(promoted_at=None))  # type: ignore[attr-defined]
    assert evals.promote_findings() == promoted
    with session() as s:
        key = AgentRun.idempotency_key == f"finding:not_synced:{subject}"
        assert len(s.scalars(select(AgentRun.id).where(key)).all()) == 1


def test_a_finding_that_cannot_become_an_eval_stays_and_the_others_are_promoted(migrated: object) -> None:
    with session() as s:
        s.execute(text("ALTER TABLE agent_runs ADD CONSTRAINT no_poison CHECK (idempotency_key NOT LIKE '%poison')"))
        for subject in ("poison", f"account {uuid4()}", f"account {uuid4()}"):
            s.add(Finding(kind="not_synced", subject=subject, message="never synced", found_at=clock.now()))
    try:
        assert evals.promote_findings() == SweepResult(3, 1, "done")
        with session() as s:
            left = s.scalars(select(Finding.subject).where(Finding.promoted_at.is_(None))).all()
        assert left == ["poison"]
    finally:
        with session() as s:
            s.execute(text("ALTER TABLE agent_runs DROP CONSTRAINT no_poison"))
            s.execute(text("DELETE FROM findings"))


@pytest.fixture
def silent(world: Any) -> Iterator[None]:
    """A model that answers nothing until the test is over."""
    over = threading.Event()

    def never(*_: object) -> tuple[int, Any]:
        over.wait(20)
        return BUSY

    world.reply = never
    yield
    over.set()


def test_a_run_whose_model_does_not_answer_ends_at_its_soft_budget_and_says_in_which_step(
    migrated: object, silent: None
) -> None:
    row = run(RunKind.PREPARE, RunStatus.QUEUED)
    started = time.monotonic()
    cut(timedelta(seconds=3), agent_runs.prepare, agent_runs.run_lost, row, token="m1")
    assert time.monotonic() - started < 10
    assert (now(row).status, now(row).outcome) == (RunStatus.FAILED, "timed out in step 1")
    assert now(row).lease_until is None


def test_evals_that_are_cut_say_how_many_were_asked_and_leave_the_others_waiting(
    migrated: object, world: Any, silent: None
) -> None:
    with session() as s:
        s.execute(AgentRun.__table__.delete().where(AgentRun.kind == RunKind.EVAL))  # type: ignore[attr-defined]
    given = {"text": "Strom", "choices": ["Energy", "Rent"], "expected": "Energy"}
    asked, next_one, waiting = (run(RunKind.EVAL, RunStatus.QUEUED, given) for _ in range(3))
    never = world.reply

    def once(*request: Any) -> tuple[int, Any]:
        world.reply = never
        return completion('{"category": "Energy"}')

    world.reply = once
    cut(timedelta(seconds=3), partial(evals.run_evals, 20), evals.evals_lost, token="m1")
    assert now(asked).status == RunStatus.PASSED
    assert (now(next_one).status, now(next_one).outcome) == (RunStatus.FAILED, "timed out after 1 rows")
    assert now(waiting).status == RunStatus.QUEUED
