"""The night's judge of imports, the batch and the mails about them: green as they should be, red when one was not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import delete, update

from books.models import Attachment, BatchStatus, EffectKind, EffectStatus, Invoice, OutsideEffect, UploadBatch
from books.models import InvoiceStatus as Status
from books.night import judge_desk
from books.night.report import Line
from books.night.world import World
from books.seeding import Expected
from fleet.storage import session
from tests.books import test_invoicing

NOWHERE = Path("/nowhere")


@pytest.fixture
def morning(migrated: object, tmp_path: Path) -> tuple[World, Expected]:
    """A batch of two files, two imports and an invoice, each mailed once."""
    invoice = test_invoicing.invoice(Status.SENT, 14, mailed=True)
    with session() as s:
        for model in (OutsideEffect, Attachment, UploadBatch):
            s.execute(delete(model))
        s.execute(update(Invoice).where(Invoice.id == invoice).values(customer_email="one@customer.example"))
        batch = UploadBatch(customer="c", status=BatchStatus.DONE_WITH_ERRORS, files_done=2, files_total=2)
        s.add(batch)
        s.flush()
    world = World("", "", "", "", NOWHERE, NOWHERE, NOWHERE, tmp_path / "mail.jsonl")
    expected = Expected(batch=batch.id, documents=[1], broken_documents=[2], mailed_invoices=[invoice])
    expected.imports = {8: ("done", 1, 0), 9: ("done", 1, 0)}
    number = test_invoicing.now(invoice).number
    keys = [f"invoice-{number}", "import-8-1", "import-9-1", f"batch-{batch.id}-1"]
    took(world, *keys)
    return world, expected


def took(world: World, *keys: str) -> None:
    """Log these mails in place of what there was."""
    world.mail_log.write_text("".join(json.dumps({"idempotency_key": key, "to": ["a"]}) + "\n" for key in keys))


def taken(world: World) -> list[str]:
    return [json.loads(line)["idempotency_key"] for line in world.mail_log.read_text().splitlines()]


def red(lines: list[Line]) -> list[str]:
    return [line.claim for line in lines if line.verdict == "red"]


def judge(world: World, expected: Expected) -> list[str]:
    return red([*judge_desk._batch(expected), *judge_desk._mails(world, expected)])


def test_one_mail_each_is_green(morning: tuple[World, Expected]) -> None:
    assert judge(*morning) == []


@pytest.mark.parametrize("change", ["doubled", "missing", "another"])
def test_a_mail_too_many_or_too_few_is_red(morning: tuple[World, Expected], change: str) -> None:
    world, expected = morning
    keys = taken(world)
    took(world, *{"doubled": [*keys, "import-8-1"], "missing": keys[:-1], "another": [*keys, "import-8-2"]}[change])
    claim = "mails about anything else" if change == "another" else "imports and batches summed up in one mail each"
    assert judge(world, expected) == [claim]


def test_a_mail_that_is_in_doubt_may_be_missing(morning: tuple[World, Expected]) -> None:
    world, expected = morning
    took(world, *[key for key in taken(world) if key != "import-9-1"])
    parked = {"kind": EffectKind.SUMMARY, "status": EffectStatus.NEEDS_REVIEW, "body": {}}
    with session() as s:
        s.add(OutsideEffect(subject="import 9, end 1", key="import-9-1", **parked))
    assert judge(world, expected) == []


def test_a_batch_that_is_still_read_is_red(morning: tuple[World, Expected]) -> None:
    with session() as s:
        s.execute(update(UploadBatch).values(status=BatchStatus.READING))
    assert judge(*morning) == ["the batch ended with its last file"]
