"""Chunks of rows with a lease: in turns by customer, each row once, a bad one parked, a killed one taken again."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest
import redis
from dramatiq import Message
from sqlalchemy import func, select, text, update

from books import attachments, chunks, clients, documents, evals, recovery
from books.documents import DocumentText
from books.leasing import Hold, take
from books.models import AgentRun, Attachment, AttachmentStatus, BacklogTurn, RunKind, RunStatus
from fleet import app as application
from fleet import deadline, janitor
from fleet.app import process_broker
from fleet.broker import keys
from fleet.clock import clock
from fleet.elastic import Did
from fleet.quota import Quota, place
from fleet.storage import session
from tests.books.taken import waiting
from tests.conftest import ROOT

FIELDS = {"merchant": "Tankhof Nagel", "date": "2026-03-01", "gross": "59.50", "vat": "9.50", "currency": "EUR"}
QUEUED = AttachmentStatus.QUEUED


@pytest.fixture(autouse=True)
def books(migrated: object) -> None:
    application.load(ROOT)
    with session() as s:
        for model in (Attachment, AgentRun, BacklogTurn):
            s.execute(model.__table__.delete())  # type: ignore[attr-defined]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, world: Any) -> list[str]:
    """The paths of documents in the order they were read; their text is there, and the model finds the fields."""
    order: list[str] = []

    def text_of(path: Any) -> DocumentText:
        order.append(str(path))
        return DocumentText("Tankhof Nagel 59,50", "text layer", 1)

    monkeypatch.setattr(documents, "read", text_of)
    world.reply = answers(FIELDS)
    return order


def answers(fields: dict[str, Any]) -> Any:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": json.dumps(fields)}}
    return lambda *_: (200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


def old(path: str, customer: str = "c", *, backlog: bool = True) -> int:
    """A document of the backlog."""
    with session() as s:
        row = Attachment(customer=customer, path=path, status=QUEUED, backlog=backlog)
        s.add(row)
        s.flush()
        return row.id


def now(row: int) -> Attachment:
    with session() as s:
        return s.get_one(Attachment, row)


def test_documents_of_the_backlog_are_read_in_turns_by_customer(read: list[str]) -> None:
    for number in range(6):
        old(f"bulk {number}", "bulk")
    for number in range(2):
        old(f"small {number}", "small")
    old("tiny 0", "tiny")
    old("not of the backlog", "small", backlog=False)
    assert attachments.backlog() == 9
    while attachments.extract_backlog(2, token="m1"):
        pass
    assert read == ["bulk 0", "small 0", "tiny 0", "bulk 1", "small 1", "bulk 2", "bulk 3", "bulk 4", "bulk 5"]
    assert attachments.backlog() == 0


def test_a_chunk_says_that_more_is_left_only_where_it_did_all_it_may(read: list[str]) -> None:
    old("a"), old("b")
    assert attachments.extract_backlog(2, token="m1") == Did(True, 2)
    assert attachments.extract_backlog(2, token="m1") == Did(False, 0)


def test_two_chains_at_once_never_read_the_same_document(read: list[str]) -> None:
    for number in range(30):
        old(f"{number}", f"customer {number % 3}")
    together = threading.Barrier(4)

    def drain(name: str) -> None:
        together.wait()
        while attachments.extract_backlog(3, token=name):
            pass

    chains = [threading.Thread(target=drain, args=(f"chain {number}",)) for number in range(4)]
    for one in chains:
        one.start()
    for one in chains:
        one.join()
    assert len(read) == len(set(read)) == 30
    assert attachments.backlog() == 0


def test_a_document_that_fails_again_and_again_is_parked_and_the_others_are_read(read: list[str], world: Any) -> None:
    bad, good = old("bad"), old("good")
    nonsense, right = answers({"merchant": 7}), answers(FIELDS)
    world.reply = lambda path, query, body: (nonsense if len(read) and read[-1] == "bad" else right)()
    attachments.extract_backlog(20, token="m1")
    assert now(good).status == AttachmentStatus.READ
    assert (now(bad).status, now(bad).attempts) == (AttachmentStatus.FAILED, 3)
    assert (now(bad).outcome or "").startswith(f"gave up after 3 tries: run attachment:{bad}, step fields:")
    assert (read.count("bad"), read.count("good")) == (3, 1)


def test_a_chunk_without_a_place_reads_nothing_and_its_document_loses_no_try(
    read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row, other = old("a"), old("b")
    model = Quota(clients.MODEL, places=2, reserve=1, because="what this test's provider takes")
    monkeypatch.setattr(process_broker(), "quotas", MappingProxyType({clients.MODEL: model}))
    monkeypatch.setattr("fleet.quota.for_people", lambda: False)
    with place(clients.MODEL, people=True):
        assert attachments.extract_backlog(5, token="m1") == Did(False, 0, early=True)
    assert (now(row).status, now(row).attempts, now(other).attempts, read) == (QUEUED, 0, 0, [])
    assert "people hold 1 and batch 0 of 2 places" in (now(row).outcome or "")
    assert not process_broker().client.keys(keys.parked(process_broker().namespace, "*")), "nobody asks for such a key"
    attachments.extract_backlog(5, token="m1")
    assert len(read) == 2


def test_a_document_at_which_redis_goes_away_loses_no_try(read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    row, other = old("a"), old("b")

    def away(path: Any) -> DocumentText:
        raise redis.ConnectionError("Error 111 connecting to localhost:6379. Connection refused.")

    monkeypatch.setattr(documents, "read", away)
    for _ in range(3):
        with pytest.raises(redis.ConnectionError):
            attachments.extract_backlog(5, token="m1")
    assert [(now(one).status, now(one).attempts) for one in (row, other)] == [(QUEUED, 0)] * 2


def test_what_a_killed_chunk_was_reading_is_read_first_when_its_message_comes_again(read: list[str]) -> None:
    old("a", "a"), old("b", "b")
    killed = old("z", "z")
    assert take(Attachment, killed, message="m1", claimable=(QUEUED,)) is not None
    attachments.extract_backlog(1, token="m2")
    assert read == ["a"]
    attachments.extract_backlog(2, token="m1")
    assert read == ["a", "z", "b"]


def test_a_chunk_whose_row_went_to_the_next_delivery_leaves_that_one_its_rows(
    read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, other, text_of = old("a"), old("b"), documents.read
    heirs: list[Hold[Attachment] | None] = []

    def stands_still(path: Any) -> DocumentText:
        heirs.append(take(Attachment, reading, message="m1", claimable=(QUEUED,)))
        return text_of(path)

    monkeypatch.setattr(documents, "read", stands_still)
    assert attachments.extract_backlog(2, token="m1") == Did(False, 0, lost=True)
    (heir,) = heirs
    assert heir is not None and now(reading).lease_token == heir.token
    assert (read, now(other).status) == (["a"], QUEUED)


def test_the_janitor_puts_what_a_vanished_chunk_held_back_into_the_backlog_without_a_message(read: list[str]) -> None:
    row = old("a")
    assert take(Attachment, row, message="m1", claimable=(QUEUED,)) is not None
    with session() as s:
        s.execute(update(Attachment).values(lease_until=func.now() - timedelta(seconds=1)))
    janitor.run("requeue_stuck_runs", recovery.stuck_runs())
    assert (now(row).status, waiting("extract_data_from_attachment")) == (QUEUED, [])
    with session() as s:
        s.execute(update(Attachment).values(queued_at=func.now() - timedelta(hours=5), finished_at=None))
    janitor.run("requeue_stuck_runs", recovery.stuck_runs())
    assert waiting("extract_data_from_attachment") == [], "it waits for the night, however long"
    attachments.extract_backlog(1, token="m2")
    assert read == ["a"]


def test_a_document_at_which_a_chunk_was_cut_off_ends_readably_and_the_others_wait(read: list[str]) -> None:
    reading, other = old("a"), old("b")
    hold = take(Attachment, reading, message="m1", claimable=(QUEUED,))
    assert hold is not None
    lost = Message("q", "a", (), {}, {}, message_id="m1")  # type: ignore[var-annotated]
    attachments.backlog_lost(lost, "timed out while its text was read")
    assert (now(reading).status, now(reading).outcome) == ("failed", "timed out while its text was read")
    assert now(other).status == QUEUED


def test_a_chunk_ends_in_time_for_what_a_person_uploaded(read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        old(f"{number}")
    began, looks = clock.now(), iter(range(100))
    monkeypatch.setattr(chunks.clock, "now", lambda: began + next(looks) * timedelta(seconds=50))
    assert attachments.extract_backlog(5, token="m1") == Did(True, 3), "there is more to do"
    assert len(read) == 3


def test_a_chunk_begins_no_row_in_the_second_half_of_its_budget(read: list[str]) -> None:
    for number in range(50):
        old(f"{number}")

    def row() -> Hold[Attachment] | None:
        threading.Event().wait(0.1)
        return attachments.DOCUMENTS.next_row("m1")

    chunk = chunks.Chunk("a test", 50)
    assert deadline.run_within(timedelta(seconds=2), chunk.do, row, attachments._read_of_backlog)
    assert 0 < len(read) < 50


def run(customer: str, key: str, text: str = "Strom") -> int:
    with session() as s:
        given = {"text": text, "choices": ["Energy", "Rent"], "expected": "Energy"}
        row = AgentRun(kind=RunKind.EVAL, status=RunStatus.QUEUED, idempotency_key=key, customer=customer, input=given)
        s.add(row)
        s.flush()
        return row.id


def test_questions_are_asked_in_turns_and_one_that_fails_three_times_ends_failed(world: Any) -> None:
    right, nonsense = answers({"category": "Energy"}), answers({"category": "Sorcery"})
    rows = [run("audit", f"a{number}") for number in range(4)] + [run("small", "s")]
    bad = run("worse", "w", "Zzz")
    asked: list[str] = []

    def reply(path: str, query: Any, body: Any) -> Any:
        asked.append("bad" if "Zzz" in json.dumps(body) else "good")
        return (nonsense if asked[-1] == "bad" else right)()

    world.reply = reply
    assert evals.backlog() == 6
    assert evals.run_evals(3, token="m1")
    with session() as s:
        passed = s.scalars(select(AgentRun.customer).where(AgentRun.status == RunStatus.PASSED)).all()
    assert sorted(passed) == ["audit", "small"]
    while evals.run_evals(3, token="m1"):
        pass
    with session() as s:
        statuses = {row.id: (row.status, row.outcome) for row in s.scalars(select(AgentRun))}
    assert {statuses[row][0] for row in rows} == {RunStatus.PASSED}
    assert statuses[bad][0] == RunStatus.FAILED
    assert (statuses[bad][1] or "").startswith("gave up after 3 tries")


@pytest.mark.parametrize(
    ("backlog", "index"),
    [(attachments.DOCUMENTS, "ix_attachments_backlog"), (evals.EVALS, "ix_agent_runs_evals")],
)
def test_the_row_whose_turn_it_is_is_found_by_index(backlog: Any, index: str) -> None:
    model = backlog.model
    first = select(model.customer, model.id).where(backlog.waits, model.customer > "c 5")
    count = select(func.count()).select_from(model).where(backlog.waits)
    with session() as s:
        s.execute(
            text(
                """
                INSERT INTO attachments (customer, path, status, backlog)
                SELECT 'c ' || n % 100, 'x', CASE n % 10 WHEN 0 THEN 'queued' ELSE 'read' END, true
                FROM generate_series(1, 20000) n
                """
            )
        )
        s.execute(
            text(
                """
                INSERT INTO agent_runs (kind, status, idempotency_key, customer, input)
                SELECT 'eval', CASE n % 10 WHEN 0 THEN 'queued' ELSE 'passed' END, 'k' || n, 'c ' || n % 100, '{}'
                FROM generate_series(1, 20000) n
                """
            )
        )
        s.execute(text("ANALYZE attachments"))
        s.execute(text("ANALYZE agent_runs"))
    assert index in plan_of(first.order_by(model.customer, model.id).limit(1))
    assert "Seq Scan" not in plan_of(count)


def plan_of(query: Any) -> str:
    with session() as s:
        compiled = query.compile(s.get_bind(), compile_kwargs={"render_postcompile": True})
        return "\n".join(s.connection().exec_driver_sql(f"EXPLAIN {compiled}", compiled.params).scalars())
