"""A document ends read, or in a state that says what was found in which file."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from books import attachments, documents
from books.documents import DocumentText
from books.model import ModelUnavailable
from books.models import Attachment, AttachmentStatus
from fleet import deadline
from fleet.storage import session
from tests.books.cut import cut

FIELDS = {"merchant": "Tankhof Nagel", "date": "2026-03-01", "gross": "59.50", "vat": "9.50", "currency": "EUR"}


def queued(path: Path | str, batch: int | None = None) -> int:
    with session() as s:
        row = Attachment(customer="c", path=str(path), batch_id=batch, status=AttachmentStatus.QUEUED)
        s.add(row)
        s.flush()
        return row.id


def now(row: int) -> Attachment:
    with session() as s:
        return s.get_one(Attachment, row)


def answers(fields: dict[str, Any]) -> Any:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": json.dumps(fields)}}
    return lambda *_: (200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document whose text is there; what reading itself does is in `test_documents.py`."""
    monkeypatch.setattr(documents, "read", lambda path: DocumentText("Tankhof Nagel 59,50", "text layer", 1))


def test_a_read_document_holds_its_fields(migrated: object, world: Any, text: None) -> None:
    row = queued("a.pdf")
    world.reply = answers(FIELDS)
    attachments.extract(row, token="m1")
    found = now(row)
    assert (found.status, found.merchant, found.gross_cents, found.vat_cents) == ("read", "Tankhof Nagel", 5950, 950)
    assert found.method == "text layer"
    assert found.text_length == 19
    attachments.extract(row, token="m2")
    assert world.count("chat/completions") == 1


@pytest.mark.parametrize(
    ("name", "content", "found"), [("scan.pdf", b"this is no PDF", "no PDF"), ("photo.png", b"", "0 bytes")]
)
def test_a_broken_document_ends_readable_and_is_not_tried_again(
    migrated: object, tmp_path: Path, world: Any, name: str, content: bytes, found: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    row = queued(path)
    attachments.extract(row, token="m1")
    assert now(row).status == AttachmentStatus.UNREADABLE
    assert name in (now(row).outcome or "")
    assert found in (now(row).outcome or "")
    assert world.asked == []


def test_a_model_that_is_down_leaves_the_document_queued(migrated: object, world: Any, text: None) -> None:
    row = queued("a.pdf")
    world.reply = lambda *_: (503, {"error": {"message": "overloaded"}})
    with pytest.raises(ModelUnavailable):
        attachments.extract(row, token="m1")
    assert now(row).status == AttachmentStatus.QUEUED


def test_a_deadline_says_at_which_step_it_struck(migrated: object, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row = queued("a.pdf")

    def read(path: Path) -> DocumentText:
        while True:
            deadline.check()

    monkeypatch.setattr(documents, "read", read)
    cut(timedelta(seconds=0.5), attachments.extract, attachments.attachment_lost, row, token="m1")
    assert (now(row).status, now(row).outcome) == (AttachmentStatus.FAILED, "timed out while its text was read")
