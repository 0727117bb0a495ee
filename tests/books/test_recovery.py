"""What the books' janitors free, end and send again, and what they leave alone."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from dramatiq import Message
from sqlalchemy import func, text, update
from structlog.testing import capture_logs

from books import recovery
from books.models import (
    AccountStatus,
    AgentRun,
    Attachment,
    AttachmentStatus,
    BankAccount,
    ImportJob,
    ImportStatus,
    RunKind,
    RunStatus,
)
from fleet import janitor
from fleet.app import load, process_broker
from fleet.broker import keys
from fleet.broker.connection import client_from
from fleet.broker.scripts import Scripts
from fleet.storage import session
from tests.books.relayed import relayed
from tests.conftest import ROOT, Environment

HOUR = timedelta(hours=1)
PASSES = {
    "recover_stuck_syncs": recovery.stuck_syncs,
    "requeue_stuck_runs": recovery.stuck_runs,
    "finish_stuck_imports": recovery.stuck_imports,
}


@pytest.fixture
def books(environment: Environment) -> Environment:
    """The application, with no row and no message."""
    load(ROOT)
    with session() as s:
        for model in (ImportJob, BankAccount, Attachment, AgentRun):
            s.execute(model.__table__.delete())  # type: ignore[attr-defined]
    return environment


def sent() -> Counter[tuple[str, Any]]:
    """What waits in the queues, by actor and argument."""
    broker = process_broker()
    found: Counter[tuple[str, Any]] = Counter()
    for queue in broker.lanes:
        bodies: Any = broker.client.hgetall(keys.bodies(broker.namespace, queue))
        for body in bodies.values():
            message: Message[Any] = Message.decode(body)
            found[message.actor_name, *message.args] += 1
    return found


def clean(*names: str) -> dict[str, janitor.Pass]:
    return {name: janitor.run(name, PASSES[name]()) for name in names or PASSES}


def add(row: Any, *, lapsed: bool | None = True, **values: Any) -> int:
    """A row held by somebody whose lease has lapsed, has not, or (None) never was one."""
    with session() as s:
        s.add(row)
        s.flush()
        model = type(row)
        until = None if lapsed is None else func.now() + timedelta(minutes=-1 if lapsed else 5)
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


def account(status: str = AccountStatus.RUNNING) -> BankAccount:
    return BankAccount(external_id=str(uuid4()), name="n", currency="EUR", customer="c", status=status)


def run(kind: RunKind, status: RunStatus = RunStatus.RUNNING) -> AgentRun:
    return AgentRun(kind=kind, status=status, idempotency_key=str(uuid4()), customer="c", input={})


def document(status: AttachmentStatus = AttachmentStatus.RUNNING) -> Attachment:
    return Attachment(customer="c", path="a", status=status)


def csv() -> ImportJob:
    return ImportJob(account_id=add(account(AccountStatus.IDLE)), path="a", status=ImportStatus.RUNNING)


def now(model: Any, row_id: int) -> Any:
    with session() as s:
        return s.get_one(model, row_id)


def status(model: Any, row_id: int) -> str:
    return str(now(model, row_id).status)


def test_an_account_whose_lease_lapsed_is_freed_and_sent_again(books: object) -> None:
    lost, live = add(account()), add(account(), lapsed=False)
    done = clean("recover_stuck_syncs")["recover_stuck_syncs"]
    assert (status(BankAccount, lost), status(BankAccount, live)) == ("idle", "running")
    assert sent() == {("update_transactions_by_bank_account", lost): 1}
    assert (done.scanned, done.stuck, done.recovered, done.skipped_live) == (2, 1, 1, 1)


def test_what_is_sent_for_a_freed_account_finds_no_request_answered(books: object) -> None:
    lost = add(account(), covers_until=func.now() + HOUR)
    clean("recover_stuck_syncs")
    assert now(BankAccount, lost).covers_until is None


def test_each_kind_of_row_goes_back_to_where_its_message_takes_it(books: object) -> None:
    prepare, submit = add(run(RunKind.PREPARE)), add(run(RunKind.SUBMIT))
    evaluation, read, imported = add(run(RunKind.EVAL)), add(document()), add(csv())
    clean()
    assert [status(AgentRun, row) for row in (prepare, submit, evaluation)] == ["queued", "approved", "queued"]
    assert (status(Attachment, read), status(ImportJob, imported)) == ("queued", "queued")
    assert sent() == {
        ("prepare_run", prepare): 1,
        ("submit_approved_run", submit): 1,
        ("extract_data_from_attachment", read): 1,
        ("import_csv", imported): 1,
    }


def test_live_and_finished_rows_are_left_alone(books: object) -> None:
    rows = [
        (AgentRun, add(run(RunKind.PREPARE), lapsed=False)),
        (AgentRun, add(run(RunKind.PREPARE, RunStatus.PREPARED))),
        (Attachment, add(document(AttachmentStatus.QUEUED))),
        (ImportJob, add(csv(), lapsed=False, started_at=func.now() - 9 * HOUR)),
        (BankAccount, add(account(), lapsed=False, started_at=func.now() - 9 * HOUR)),
    ]
    before = [status(*row) for row in rows]
    done = clean()
    assert [status(*row) for row in rows] == before
    assert {one.verdict for one in done.values()} == {"idle"}
    assert not sent()


def test_a_row_whose_message_was_lost_is_sent_again_once_a_while(books: object) -> None:
    queued = add(document(AttachmentStatus.QUEUED), queued_at=func.now() - HOUR)
    clean()
    clean()
    assert sent() == {("extract_data_from_attachment", queued): 1}


def test_a_row_whose_worker_died_five_times_is_given_up_readably(books: object) -> None:
    poison = add(document(), attempts=5)
    clean()
    row = now(Attachment, poison)
    assert row.status == "failed" and row.finished_at is not None
    assert "attempt 5" in row.outcome
    assert not sent()


def test_rows_from_before_there_were_leases_are_ended_readably_and_not_skipped(books: object) -> None:
    old = {"lease_token": None, "started_at": None}
    rows = [
        (BankAccount, add(account(), lapsed=None, **old)),
        (AgentRun, add(run(RunKind.PREPARE), lapsed=None, **old)),
        (AgentRun, add(run(RunKind.SUBMIT), lapsed=None, started_at=func.now() - 3 * HOUR)),
        (Attachment, add(document(), lapsed=None, **old)),
        (ImportJob, add(csv(), lapsed=None, **old)),
    ]
    done = clean()
    for model, row_id in rows:
        row = now(model, row_id)
        assert row.status == "failed" and row.finished_at is not None, model
        assert "without a lease" in row.outcome
    assert "handed in" in now(*rows[2]).outcome
    assert sum(one.recovered for one in done.values()) == 5
    assert not sent()


def test_a_row_without_a_lease_that_began_lately_may_be_an_older_workers_and_is_left(books: object) -> None:
    live = add(document(), lapsed=None)
    assert clean()["requeue_stuck_runs"].skipped_live == 1
    assert status(Attachment, live) == "running"


def test_a_thousand_old_live_rows_before_it_hide_no_orphan(books: object) -> None:
    with session() as s:
        for table, more, values in (
            ("bank_accounts", "external_id, name, currency, customer", "'live-' || n, 'n', 'EUR', 'c'"),
            ("attachments", "customer, path", "'c', 'a'"),
        ):
            s.execute(
                text(
                    f"INSERT INTO {table} ({more}, status, lease_until, started_at) SELECT {values}, 'running', "
                    "now() + interval '5 minutes', now() - interval '9 hours' FROM generate_series(1, 1000) n"
                )
            )
    synced, read = add(account()), add(document())
    done = clean()
    assert (status(BankAccount, synced), status(Attachment, read)) == ("idle", "queued")
    assert [(one.scanned, one.stuck, one.recovered, one.skipped_live) for one in done.values()] == [
        (1001, 1, 1, 1000),
        (1001, 1, 1, 1000),
        (0, 0, 0, 0),
    ]


def test_more_than_a_page_of_orphans_is_freed_in_one_pass(books: object) -> None:
    with session() as s:
        s.execute(
            text(
                "INSERT INTO bank_accounts (external_id, name, currency, customer, status, lease_until, started_at) "
                "SELECT 'lost-' || n, 'n', 'EUR', 'c', 'running', now() - interval '1 minute', now() "
                "FROM generate_series(1, 1200) n"
            )
        )
    done = clean("recover_stuck_syncs")["recover_stuck_syncs"]
    assert (done.stuck, done.recovered) == (1200, 1200)
    assert len(sent()) == 1200


def test_two_passes_at_once_recover_each_row_once(books: object) -> None:
    rows = {add(account()) for _ in range(60)}
    began = threading.Barrier(2)
    passes: list[janitor.Pass] = []

    def work() -> None:
        began.wait()
        passes.append(clean("recover_stuck_syncs")["recover_stuck_syncs"])

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one.recovered for one in passes) == 60
    assert sent() == {("update_transactions_by_bank_account", row): 1 for row in rows}


def test_a_row_that_somebody_works_on_at_this_moment_is_passed_over_and_not_waited_for(books: object) -> None:
    lost = add(account())
    with session() as other:
        other.execute(update(BankAccount).where(BankAccount.id == lost).values(name="taken over"))
        done = clean("recover_stuck_syncs")["recover_stuck_syncs"]
    assert (done.stuck, done.recovered, done.skipped_live) == (1, 0, 1)
    assert not sent()


def test_a_row_that_cannot_be_moved_costs_one_failure_and_stays(books: object) -> None:
    poison, lost = add(document()), add(document())
    with session() as s:
        s.execute(
            text(
                f"ALTER TABLE attachments ADD CONSTRAINT no_move CHECK (id <> {poison} OR status <> 'queued') NOT VALID"
            )
        )
    try:
        with capture_logs() as lines:
            done = clean("requeue_stuck_runs")["requeue_stuck_runs"]
    finally:
        with session() as s:
            s.execute(text("ALTER TABLE attachments DROP CONSTRAINT no_move"))
    assert (done.verdict, done.recovered, done.failed) == ("failed", 1, 1)
    assert (status(Attachment, poison), status(Attachment, lost)) == ("running", "queued")
    assert [line["row"] for line in lines if line["event"] == "janitor_row_failed"] == [f"Attachment {poison}"]


def test_what_a_pass_cannot_send_while_redis_is_away_the_relay_sends(
    books: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [add(account()) for _ in range(3)]
    broker = process_broker()
    with monkeypatch.context() as away, capture_logs() as lines:
        away.setattr("fleet.broker.broker._PAUSES", ())
        away.setitem(broker.__dict__, "own_scripts", Scripts(client_from("redis://127.0.0.1:1/0")))
        assert clean("recover_stuck_syncs")["recover_stuck_syncs"].recovered == 3
    assert [status(BankAccount, row) for row in rows] == ["idle"] * 3
    assert [line["event"] for line in lines] == ["outbox_not_sent", "recover_stuck_syncs"]
    assert not sent()
    relayed()
    assert sent() == {("update_transactions_by_bank_account", row): 1 for row in rows}
