"""Judges what people left on the desk: documents, imports, agent runs and invoices, against what was drawn and seeded.

The truth of a receipt is the file drawn beside it; that a mail went out once is the mail server's journal; what a run
asked the model, the model's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import select

from books.models import (
    AgentRun,
    AgentStep,
    Attachment,
    AttachmentStatus,
    BatchStatus,
    EffectKind,
    EffectStatus,
    ImportJob,
    Invoice,
    InvoiceStatus,
    OutsideEffect,
    RunStatus,
    UploadBatch,
)
from books.night.logs import lines
from books.night.report import Line, judged, said
from books.night.world import World
from books.seeding import Expected
from fleet.storage import session

SECTION = "desk"
_FIELDS_RIGHT = 0.9


def judge(world: World, expected: Expected) -> Iterator[Line]:
    """Lines on documents, imports, runs, invoices and mails."""
    yield from _documents(expected)
    yield from _batch(expected)
    yield from _imports(expected)
    yield from _runs(world, expected)
    yield from _invoices(world, expected)
    yield from _mails(world, expected)


def _rows(model: Any, ids: Sequence[int]) -> list[Any]:
    with session() as s:
        return list(s.scalars(select(model).where(model.id.in_(ids)).order_by(model.id)))


def _documents(expected: Expected) -> Iterator[Line]:
    documents = _rows(Attachment, [*expected.documents, *expected.uploads])
    unread = [_named(row) for row in documents if row.status != AttachmentStatus.READ]
    yield judged(SECTION, "documents read", len(documents), len(documents) - len(unread), unread)
    methods = Counter(row.method for row in documents if row.method)
    yield said(SECTION, "documents by method", ", ".join(f"{method} {n}" for method, n in methods.most_common()))
    right, wrong = 0, []
    for row in documents:
        for name, (should, found) in _fields(row).items():
            right += should == found
            if should != found:
                wrong.append(f"{Path(row.path).name} {name}: {found!r} for {should!r}")
    total = right + len(wrong)
    few = wrong if total == 0 or right / total < _FIELDS_RIGHT else []
    yield judged(SECTION, "fields of documents right", f"{_FIELDS_RIGHT:.0%} or more", f"{right} of {total}", few)
    broken = _rows(Attachment, expected.broken_documents)
    silent = [_named(row) for row in broken if row.status != AttachmentStatus.UNREADABLE or not row.outcome]
    yield judged(SECTION, "broken documents that say what is wrong", len(broken), len(broken) - len(silent), silent)


def _batch(expected: Expected) -> Iterator[Line]:
    (batch,) = _rows(UploadBatch, [expected.batch])
    total = len(expected.documents) + len(expected.broken_documents)
    should = (BatchStatus.DONE_WITH_ERRORS, total, total)
    found = (batch.status, batch.files_done, batch.files_total)
    wrong = [f"batch {batch.id} {batch.outcome}"] if found != should else []
    yield judged(SECTION, "the batch ended with its last file", " ".join(map(str, should)), found, wrong)


def _fields(row: Attachment) -> dict[str, tuple[Any, Any]]:
    """Field -> (what was drawn, what was read)."""
    truth = json.loads(Path(row.path).with_suffix(".truth.json").read_text())
    return {
        "merchant": (truth["merchant"], row.merchant),
        "date": (truth["date"], row.issued_on.isoformat() if row.issued_on else None),
        "gross": (_cents(truth["gross"]), row.gross_cents),
        "vat": (_cents(truth["vat"]), row.vat_cents),
        "currency": (truth["currency"], row.currency),
    }


def _cents(amount: str | None) -> int | None:
    if amount is None:
        return None
    whole, _, cents = amount.partition(".")
    return int(whole) * 100 + int(cents.ljust(2, "0"))


def _imports(expected: Expected) -> Iterator[Line]:
    wrong = []
    for job in _rows(ImportJob, list(expected.imports)):
        should = expected.imports[job.id]
        if (job.status, job.rows_done, job.rows_failed) != should:
            wrong.append(
                f"import {job.id} {job.status} {job.rows_done}+{job.rows_failed}, not {should} ({job.outcome})"
            )
    total = len(expected.imports)
    yield judged(SECTION, "imports ended as their files deserve", total, total - len(wrong), wrong)


def _runs(world: World, expected: Expected) -> Iterator[Line]:
    for claim, ids, ends in (
        ("runs prepared", expected.prepare_runs, (RunStatus.PREPARED,)),
        ("approved runs submitted", expected.submit_runs, (RunStatus.SUBMITTED, RunStatus.NEEDS_REVIEW)),
        ("evals answered", expected.eval_runs, (RunStatus.PASSED, RunStatus.FAILED)),
    ):
        rows = _rows(AgentRun, ids)
        left = [row for row in rows if row.status not in ends]
        wrong = [f"run {row.id} {row.status} ({row.outcome})" for row in left]
        # A question that waits is the next night's; nothing of it is lost.
        waits = claim == "evals answered" and all(row.status == RunStatus.QUEUED for row in left)
        yield judged(SECTION, claim, len(rows), len(rows) - len(wrong), wrong, "apart" if waits else "red")
    with session() as s:
        statuses = Counter(s.scalars(select(AgentRun.status)))
        steps = Counter(s.execute(select(AgentStep.run_id, AgentStep.number)).all())
    yield said(SECTION, "runs by status", ", ".join(f"{status} {n}" for status, n in statuses.most_common()))
    doubled = [f"step {number} of run {run}" for (run, number), times in steps.items() if times > 1]
    yield judged(SECTION, "steps of runs stored twice", 0, len(doubled), doubled)
    calls = list(lines(world.model_log))
    answers = Counter((call["run"], call["step"]) for call in calls if call["status"] == 200)
    faults = Counter(call["fault"] for call in calls if call["fault"])
    told = ", ".join(f"{fault} {n}" for fault, n in faults.most_common()) or "no faults"
    yield said(SECTION, "model calls", f"{len(calls)} ({told}), {sum(n - 1 for n in answers.values())} asked again")


def _invoices(world: World, expected: Expected) -> Iterator[Line]:
    overdue = _rows(Invoice, expected.overdue_invoices)
    wrong = [f"{row.number} {row.status}" for row in overdue if row.status != InvoiceStatus.OVERDUE]
    yield judged(SECTION, "late invoices marked overdue", len(overdue), len(overdue) - len(wrong), wrong)
    due = _rows(Invoice, expected.mailed_invoices)
    mails = _by(world, "to")
    wrong = [
        f"{row.number} {row.status}, {mails[row.customer_email]} mails" for row in due if not _mailed_once(row, mails)
    ]
    yield judged(SECTION, "due invoices mailed, once each", len(due), len(due) - len(wrong), wrong)


def _mails(world: World, expected: Expected) -> Iterator[Line]:
    """Of each import and batch one, or none where its worker was killed while it was on its way; and no others."""
    keys = [f"import-{job_id}-1" for job_id in expected.imports] + [f"batch-{expected.batch}-1"]
    mails = _by(world, "idempotency_key")
    in_doubt = (OutsideEffect.kind == EffectKind.SUMMARY) & (OutsideEffect.status == EffectStatus.NEEDS_REVIEW)
    with session() as s:
        parked = set(s.scalars(select(OutsideEffect.key).where(in_doubt)))
    wrong = [f"{key} {mails[key]} mails" for key in keys if mails[key] != 1 and not (key in parked and not mails[key])]
    yield judged(SECTION, "imports and batches summed up in one mail each", len(keys), len(keys) - len(wrong), wrong)
    others = mails.total() - sum(mails[key] for key in keys)
    others -= sum(mails[f"invoice-{row.number}"] for row in _rows(Invoice, expected.mailed_invoices))
    yield judged(SECTION, "mails about anything else", 0, others, [f"{others} mails"] if others else [])


def _by(world: World, name: str) -> Counter[str]:
    """How many mails the server took, by what a line of its log says."""
    said = [line[name] for line in lines(world.mail_log)]
    return Counter(one if isinstance(one, str) else one[0] for one in said)


def _mailed_once(row: Invoice, mails: Counter[str]) -> bool:
    if row.status == InvoiceStatus.NEEDS_REVIEW:  # its worker was killed while the mail was on its way
        return mails[row.customer_email] <= 1
    return row.status == InvoiceStatus.SENT and row.sent_at is not None and mails[row.customer_email] == 1


def _named(row: Attachment) -> str:
    return f"{Path(row.path).name} {row.status} ({row.outcome})"
