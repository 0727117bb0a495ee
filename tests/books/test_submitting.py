"""A run that a person approved is filed once, and nobody is told it was if it was not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import delete, func, select, update

from books import outside, submitting
from books.models import AgentRun, AgentStep, EffectKind, EffectStatus, OutsideEffect, RunKind, RunStatus
from books.outside import NotTaken, Unclear
from fleet.errors import RetryLater
from fleet.storage import session
from tests.books.cut import cut
from tests.books.gateway import SandboxGateway
from tests.books.test_agent_runs import completion
from tests.middleware.slot_rows import refused_port
from tests.middleware.test_postgres_gone import raised


def run() -> int:
    with session() as s:
        given = {"task": "Hand in the advance VAT return.", "vat_payable_cents": 12_345}
        row = AgentRun(
            kind=RunKind.SUBMIT, status=RunStatus.APPROVED, idempotency_key=str(uuid4()), customer="c", input=given
        )
        s.add(row)
        s.flush()
        return row.id


def now(row: int) -> tuple[str, str]:
    """Status of the run and of its filing."""
    with session() as s:
        filing = s.scalars(select(OutsideEffect).where(OutsideEffect.subject == f"run {row}")).one_or_none()
        return s.get_one(AgentRun, row).status, filing.status if filing else "none"


def lapse(row: int) -> None:
    with session() as s:
        s.execute(
            update(OutsideEffect)
            .where(OutsideEffect.subject == f"run {row}")
            .values(lease_until=func.now() - timedelta(seconds=1))
        )


@pytest.fixture
def checked(migrated: object, world: Any, gateway: SandboxGateway) -> SandboxGateway:
    """A model that says OK, and an authority."""
    world.reply = lambda *_: completion("OK")
    with session() as s:
        s.execute(delete(OutsideEffect))  # what another test left open
    return gateway


@pytest.fixture
def last_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitting, "is_last_attempt", lambda: True)


def test_an_approved_run_is_filed_once_however_many_messages_come(checked: SandboxGateway, world: Any) -> None:
    row = run()
    for token in ("m1", "m1", "m2"):
        submitting.submit_approved(row, token=token)
    assert now(row) == (RunStatus.SUBMITTED, EffectStatus.DONE)
    assert (checked.taken()[f"run {row}"], world.count("chat")) == (1, 1)
    with session() as s:
        filing = s.scalars(select(OutsideEffect).where(OutsideEffect.subject == f"run {row}")).one()
    assert filing.receipt == checked.lines(reference=f"run {row}")[0]["id"]
    assert (filing.lease_until, filing.attempts) == (None, 1)


def test_a_check_that_says_stop_keeps_the_run_in_the_house(checked: SandboxGateway, world: Any) -> None:
    row = run()
    world.reply = lambda *_: completion("STOP: the sums differ")
    submitting.submit_approved(row, token="m1")
    assert now(row) == (RunStatus.FAILED, "none")
    with session() as s:
        ended = s.get_one(AgentRun, row)
        assert (ended.outcome, ended.result) == (
            "not handed in; the check said STOP, its result why",
            {"check": "STOP: the sums differ"},
        )
    assert checked.taken()[f"run {row}"] == 0


@pytest.mark.parametrize("fault", ["silent", "failed", "dropped", "away"])
def test_a_broken_answer_is_asked_about_and_the_filing_is_there_once(checked: SandboxGateway, fault: str) -> None:
    row = run()
    checked.script(send=[fault])
    submitting.submit_approved(row, token="m1")
    assert now(row) == (RunStatus.SUBMITTED, EffectStatus.DONE)
    assert checked.taken()[f"run {row}"] == 1
    sent = 2 if fault in ("dropped", "away") else 1
    acts = [line["act"] for line in checked.lines() if line["key"].startswith(f"filing-{row}-")]
    assert acts == ["send", "ask", "send"][: sent + 1]


def test_what_nobody_answers_is_asked_about_by_the_next_attempt_before_anything_is_sent(
    checked: SandboxGateway,
) -> None:
    row = run()
    checked.script(send=["silent"], ask=["dropped"])
    with pytest.raises(Unclear):
        submitting.submit_approved(row, token="m1")
    assert now(row) == (RunStatus.SUBMITTING, EffectStatus.RUNNING)
    submitting.submit_approved(row, token="m1")
    assert now(row) == (RunStatus.SUBMITTED, EffectStatus.DONE)
    acts = [line["act"] for line in checked.lines() if line["key"].startswith(f"filing-{row}-")]
    assert acts == ["send", "ask", "ask"]


def test_what_nobody_can_tell_is_parked_and_never_sent_again(checked: SandboxGateway) -> None:
    row = run()
    checked.script(send=["silent"], ask=["away", "away"])
    with pytest.raises(Unclear):
        submitting.submit_approved(row, token="m1")
    lapse(row)
    resolved = outside.resolve(token="janitor")
    assert (resolved.parked, resolved.settled, resolved.failed) == (1, 0, 0)
    assert now(row) == (RunStatus.NEEDS_REVIEW, EffectStatus.NEEDS_REVIEW)
    for token in ("m1", "m2"):
        submitting.submit_approved(row, token=token)
        outside.resolve(token="janitor")
    assert len([line for line in checked.lines(act="send") if line["key"].startswith(f"filing-{row}-")]) == 1


@pytest.mark.parametrize(("faults", "sends"), [(["silent"], 1), (["dropped", None], 2)])
def test_a_janitor_asks_first_and_sends_under_the_same_key_what_is_not_there(
    checked: SandboxGateway, faults: list[str | None], sends: int
) -> None:
    row = run()
    checked.script(send=faults, ask=["away"])
    with pytest.raises(Unclear):
        submitting.submit_approved(row, token="m1")
    lapse(row)
    resolved = outside.resolve(token="janitor")
    assert (resolved.parked, resolved.settled) == (0, 1)
    assert now(row) == (RunStatus.SUBMITTED, EffectStatus.DONE)
    keys = [line["key"] for line in checked.lines(act="send") if line["key"].startswith(f"filing-{row}-")]
    assert (len(keys), len(set(keys)), checked.taken()[f"run {row}"]) == (sends, 1, 1)


def test_a_filing_whose_run_a_person_ended_is_not_sent_by_a_janitor(checked: SandboxGateway) -> None:
    row = run()
    checked.script(send=["dropped"], ask=["away"])
    with pytest.raises(Unclear):
        submitting.submit_approved(row, token="m1")
    with session() as s:
        withdrawn = {"status": RunStatus.FAILED, "outcome": "withdrawn by its owner"}
        s.execute(update(AgentRun).where(AgentRun.id == row).values(**withdrawn))
    lapse(row)
    assert outside.resolve(token="janitor").settled == 1
    assert now(row) == (RunStatus.FAILED, EffectStatus.NOT_SENT)
    assert checked.taken()[f"run {row}"] == 0
    with session() as s:
        assert s.get_one(AgentRun, row).outcome == "withdrawn by its owner"
        filing = s.scalars(select(OutsideEffect).where(OutsideEffect.subject == f"run {row}")).one()
        assert filing.outcome == "not sent: its run is failed"


def test_a_janitor_leaves_a_filing_alone_that_a_live_worker_holds(checked: SandboxGateway) -> None:
    row = run()
    checked.script(send=["silent"], ask=["away"])
    with pytest.raises(Unclear):
        submitting.submit_approved(row, token="m1")
    outside.resolve(token="janitor")
    submitting.submit_approved(row, token="m2")
    assert now(row) == (RunStatus.SUBMITTING, EffectStatus.RUNNING)


def test_a_limit_is_waited_for_and_uses_nothing_up(checked: SandboxGateway, last_attempt: None) -> None:
    row = run()
    checked.script(send=["limited"])
    with pytest.raises(RetryLater) as found:
        submitting.submit_approved(row, token="m1")
    assert (found.value.key, found.value.after) == ("authority", timedelta(seconds=1))
    assert now(row) == (RunStatus.SUBMITTING, EffectStatus.WAITING)
    submitting.submit_approved(row, token="m1")
    assert now(row) == (RunStatus.SUBMITTED, EffectStatus.DONE)


def test_a_filing_that_never_left_is_given_up_readably_at_the_last_attempt(
    checked: SandboxGateway, last_attempt: None
) -> None:
    row = run()
    checked.script(send=["away", "away"])
    submitting.submit_approved(row, token="m1")
    assert now(row) == (RunStatus.FAILED, EffectStatus.NOT_SENT)
    with session() as s:
        assert "it is not there" in (s.get_one(AgentRun, row).outcome or "")
    assert checked.taken()[f"run {row}"] == 0


def test_a_filing_that_postgresql_kept_from_leaving_is_not_given_up(
    checked: SandboxGateway, last_attempt: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = run()

    @contextmanager
    def asks_first(self: object, effect: OutsideEffect) -> Iterator[object]:
        with refused_port() as url:
            raise raised(url)
        yield

    with monkeypatch.context() as away, pytest.raises(NotTaken):
        away.setattr(submitting.Filing, "ready", asks_first)
        submitting.submit_approved(row, token="m1")
    assert now(row) == (RunStatus.SUBMITTING, EffectStatus.WAITING)
    submitting.submit_approved(row, token="m1")
    assert now(row) == (RunStatus.SUBMITTED, EffectStatus.DONE)


def test_a_filing_that_waits_and_was_forgotten_is_taken_up_by_a_janitor(checked: SandboxGateway) -> None:
    row = run()
    checked.script(send=["away", "away"])
    with pytest.raises(NotTaken):
        submitting.submit_approved(row, token="m1")
    assert now(row) == (RunStatus.SUBMITTING, EffectStatus.WAITING)
    assert outside.resolve(token="janitor").settled == 0
    with session() as s:
        long_ago = update(OutsideEffect).where(OutsideEffect.subject == f"run {row}")
        s.execute(long_ago.values(finished_at=func.now() - timedelta(hours=1)))
    assert outside.resolve(token="janitor").settled == 1
    assert now(row) == (RunStatus.SUBMITTED, EffectStatus.DONE)


def test_a_filing_that_is_cut_off_by_its_budget_is_a_janitors_at_once(checked: SandboxGateway) -> None:
    row = run()
    checked.script(send=["late"])
    cut(timedelta(seconds=3), submitting.submit_approved, submitting.submission_lost, row, token="m1")
    assert now(row) == (RunStatus.SUBMITTING, EffectStatus.RUNNING)
    assert outside.resolve(token="janitor").settled == 1
    assert now(row) == (RunStatus.SUBMITTED, EffectStatus.DONE)
    assert checked.taken()[f"run {row}"] == 1


def test_a_key_that_the_authority_knows_for_another_thing_is_a_persons_matter(checked: SandboxGateway) -> None:
    from books import clients

    row = run()
    with session() as s:
        held = outside.intend(s, EffectKind.FILING, f"run {row}", key=f"k{row}", body={"reference": "a"}, token="m1")
        s.execute(update(AgentRun).where(AgentRun.id == row).values(status=RunStatus.SUBMITTING))
    assert held is not None
    clients.authority().send(f"k{row}", {"reference": "b"})
    submitting.submit_approved(row, token="m1")
    assert now(row) == (RunStatus.NEEDS_REVIEW, EffectStatus.NEEDS_REVIEW)


def test_the_model_is_paid_for_once_though_the_filing_comes_again(checked: SandboxGateway, world: Any) -> None:
    row = run()
    checked.script(send=["silent"], ask=["away"])
    with pytest.raises(Unclear):
        submitting.submit_approved(row, token="m1")
    submitting.submit_approved(row, token="m1")
    with session() as s:
        assert s.scalar(select(func.count()).select_from(AgentStep).where(AgentStep.run_id == row)) == 1
    assert world.count("chat") == 1
