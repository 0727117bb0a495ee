"""A worker killed at any place of a chunk: every row comes back and ends, by its message or by another chain."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, update

from books import attachments, categorizing, documents, recovery
from books.documents import DocumentText
from books.models import Attachment, AttachmentStatus, BacklogTurn, BankAccount, Transaction
from fleet import app as application
from fleet import janitor
from fleet.storage import session
from tests.books.killed import HALVES, killed_at
from tests.books.test_categorizing import account_of, add, now, says
from tests.books.test_chunks import FIELDS, answers
from tests.conftest import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
MOST_PLACES = 200


@pytest.fixture(autouse=True)
def books(migrated: object, monkeypatch: pytest.MonkeyPatch) -> None:
    application.load(ROOT)
    with session() as s:
        for model in (Attachment, Transaction, BankAccount, BacklogTurn):
            s.execute(model.__table__.delete())  # type: ignore[attr-defined]
    monkeypatch.setattr(documents, "read", lambda _: DocumentText("Tankhof Nagel 59,50", "text layer", 1))


@HALVES
@pytest.mark.parametrize("message", ["comes again", "is lost"])
def test_every_transaction_of_a_killed_chunk_is_sorted(world: Any, message: str, step: int) -> None:
    world.reply = says("Bank fees")
    account, killed = account_of("c"), 0
    for place in range(1 + (message == "is lost" and step > 1), MOST_PLACES, step):
        rows = [add(account, text) for text in ("Tankstelle", "Kontoführung 1", "Kontoführung 2")]
        token = f"message {place}"
        if not killed_at(place, lambda token=token: categorizing.categorize_uncategorized(20, token)):  # type: ignore[misc]
            break
        killed += 1
        if message == "is lost":
            with session() as s:
                s.execute(update(Transaction).values(sorting_until=func.now() - timedelta(seconds=1)))
            token = "another chain's"
        while categorizing.categorize_uncategorized(20, token):
            pass
        found = [now(row) for row in rows]
        assert [row.categorized_by for row in found] == ["rule", "model", "model"], place
        assert {row.unsorted_because for row in found} == {None}
    assert killed > 20 // step, "the chunk has fewer places than it should"


@HALVES
@pytest.mark.parametrize("message", ["comes again", "is lost"])
def test_every_document_of_a_killed_chunk_is_read(world: Any, message: str, step: int) -> None:
    world.reply, killed = answers(FIELDS), 0
    for place in range(1 + (message == "is lost" and step > 1), MOST_PLACES, step):
        with session() as s:
            rows = [Attachment(customer=f"c{n}", path="x", status="queued", backlog=True) for n in range(2)]
            s.add_all(rows)
            s.flush()
            ids = [row.id for row in rows]
        token = f"message {place}"
        if not killed_at(place, lambda token=token: attachments.extract_backlog(5, token)):  # type: ignore[misc]
            break
        killed += 1
        if message == "is lost":
            with session() as s:
                lapsed = update(Attachment).where(Attachment.lease_until.is_not(None))
                s.execute(lapsed.values(lease_until=func.now() - timedelta(seconds=1)))
            janitor.run("requeue_stuck_runs", recovery.stuck_runs())
            token = "another chain's"
        while attachments.extract_backlog(5, token):
            pass
        with session() as s:
            statuses = {s.get_one(Attachment, row).status for row in ids}
        assert statuses == {AttachmentStatus.READ}, place
    assert killed > 20 // step, "the chunk has fewer places than it should"
