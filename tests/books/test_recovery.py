"""What the janitors free, and what they leave alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from dramatiq import ActorNotFound
from sqlalchemy import func, update

from books import recovery
from books.models import (
    AccountStatus,
    AgentRun,
    Attachment,
    AttachmentStatus,
    BankAccount,
    ImportJob,
    RunKind,
    RunStatus,
)
from fleet.storage import session


class Sent:
    """Stands where the broker is: what a janitor sends, by actor."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Any]] = []
        self.broken = False

    def get_actor(self, name: str) -> Any:
        sent = self

        class Actor:
            def send_with_options(self, *, args: tuple[int, ...], expires_at: None) -> None:
                if sent.broken:
                    raise ActorNotFound(name)
                sent.messages.append((name, *args))

        return Actor()


@pytest.fixture
def sent(migrated: object, monkeypatch: pytest.MonkeyPatch) -> Sent:
    with session() as s:
        for model in (ImportJob, BankAccount, Attachment, AgentRun):
            s.execute(model.__table__.delete())  # type: ignore[attr-defined]
    broker = Sent()
    monkeypatch.setattr(recovery, "process_broker", lambda: broker)
    return broker


def add(row: Any, *, lapsed: bool = True, **values: Any) -> int:
    with session() as s:
        s.add(row)
        s.flush()
        model = type(row)
        until = func.now() + timedelta(minutes=-1 if lapsed else 5)
        started = func.now() - timedelta(minutes=64)
        held = {
            "lease_until": until,
            "started_at": started,
            "lease_token": "d1",
            "lease_message": "m1",
            "attempts": 1,
            **values,
        }
        s.execute(update(model).where(model.id == row.id).values(**held))
        return int(row.id)


def account() -> BankAccount:
    return BankAccount(external_id=str(uuid4()), name="n", currency="EUR", customer="c", status=AccountStatus.RUNNING)


def run(kind: RunKind, status: RunStatus) -> AgentRun:
    return AgentRun(kind=kind, status=status, idempotency_key=str(uuid4()), customer="c", input={})


def status(model: Any, row_id: int) -> str:
    with session() as s:
        return str(s.get_one(model, row_id).status)


def test_an_account_whose_lease_lapsed_is_freed_and_sent_again(sent: Sent) -> None:
    lost, live = add(account()), add(account(), lapsed=False)
    recovery.recover_stuck_syncs()
    assert (status(BankAccount, lost), status(BankAccount, live)) == ("idle", "running")
    assert sent.messages == [("update_transactions_by_bank_account", lost)]


def test_what_is_sent_for_a_freed_account_finds_no_request_answered(sent: Sent) -> None:
    lost = add(account(), covers_until=func.now() + timedelta(hours=1))
    recovery.recover_stuck_syncs()
    with session() as s:
        assert s.get_one(BankAccount, lost).covers_until is None


def test_each_kind_of_run_goes_back_to_where_its_message_takes_it(sent: Sent) -> None:
    prepare = add(run(RunKind.PREPARE, RunStatus.RUNNING))
    submit = add(run(RunKind.SUBMIT, RunStatus.RUNNING))
    evaluation = add(run(RunKind.EVAL, RunStatus.RUNNING))
    document = add(Attachment(customer="c", path="a", status=AttachmentStatus.RUNNING))
    recovery.requeue_stuck_runs()
    assert status(AgentRun, prepare) == "queued"
    assert status(AgentRun, submit) == "approved"
    assert status(AgentRun, evaluation) == "queued"
    assert status(Attachment, document) == "queued"
    assert sorted(sent.messages) == [
        ("extract_data_from_attachment", document),
        ("prepare_run", prepare),
        ("submit_approved_run", submit),
    ]


def test_live_and_finished_rows_are_left_alone(sent: Sent) -> None:
    live = add(run(RunKind.PREPARE, RunStatus.RUNNING), lapsed=False)
    done = add(run(RunKind.PREPARE, RunStatus.PREPARED))
    fresh = add(Attachment(customer="c", path="a", status=AttachmentStatus.QUEUED))
    recovery.requeue_stuck_runs()
    assert (status(AgentRun, live), status(AgentRun, done), status(Attachment, fresh)) == (
        "running",
        "prepared",
        "queued",
    )
    assert sent.messages == []


def test_a_row_whose_message_was_lost_is_sent_again_once_a_while(sent: Sent) -> None:
    queued = add(
        Attachment(customer="c", path="a", status=AttachmentStatus.QUEUED), queued_at=func.now() - timedelta(hours=1)
    )
    recovery.requeue_stuck_runs()
    recovery.requeue_stuck_runs()
    assert sent.messages == [("extract_data_from_attachment", queued)]


def test_a_row_whose_worker_died_five_times_is_given_up_readably(sent: Sent) -> None:
    poison = add(Attachment(customer="c", path="a", status=AttachmentStatus.RUNNING), attempts=5)
    recovery.requeue_stuck_runs()
    with session() as s:
        row = s.get_one(Attachment, poison)
    assert row.status == "failed"
    assert "attempt 5" in (row.outcome or "")
    assert sent.messages == []


@pytest.mark.parametrize(("broken", "counts"), [(False, (1, 0)), (True, (0, 1))])
def test_a_pass_is_one_line_with_its_counts(
    sent: Sent, monkeypatch: pytest.MonkeyPatch, broken: bool, counts: tuple[int, int]
) -> None:
    lines: list[tuple[str, dict[str, Any]]] = []
    for level in ("info", "warning"):
        monkeypatch.setattr(recovery.log, level, lambda event, **values: lines.append((event, values)))
    sent.broken = broken
    add(account())
    recovery.recover_stuck_syncs()
    recovered, failed = counts
    assert lines == [
        ("recover_stuck_syncs", {"processed": 1, "recovered": recovered, "failed": failed, "oldest": "1h04m"})
    ]
