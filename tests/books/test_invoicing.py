"""An invoice is mailed once, and one whose day has passed is overdue."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from email import message_from_bytes
from email.message import Message
from typing import Any
from uuid import uuid4

import pytest
from aiosmtpd.controller import Controller
from sqlalchemy import select

from books import invoicing
from books.calendar import today
from books.models import Finding, Invoice, InvoiceStatus
from config.settings import settings
from fleet.clock import clock
from fleet.storage import session


class Sink:
    """Takes mails, unless told what to answer instead."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.answer: str | None = None
        self.break_session = False

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.break_session:
            server.transport.abort()
        if self.answer:
            return self.answer
        self.mails.append(message_from_bytes(envelope.content))
        return "250 taken"


@pytest.fixture
def sink(migrated: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    taken = Sink()
    controller = Controller(taken, hostname="127.0.0.1", port=port)
    controller.start()
    monkeypatch.setenv("BOOKS_SMTP_PORT", str(port))
    settings.cache_clear()
    yield taken
    controller.stop()
    settings.cache_clear()


def invoice(status: InvoiceStatus, days: int, mailed: bool = False) -> int:
    with session() as s:
        row = Invoice(
            number=f"R-{uuid4().hex[:8]}",
            customer="c",
            customer_email="office@customer.example",
            amount_cents=11_900,
            currency="EUR",
            due_on=today() + timedelta(days=days),
            status=status,
            sent_at=clock.now() if mailed else None,
        )
        s.add(row)
        s.flush()
        return row.id


def now(row: int) -> Invoice:
    with session() as s:
        return s.get_one(Invoice, row)


def test_a_due_invoice_is_mailed_once_with_its_idempotency_key(sink: Sink) -> None:
    row = invoice(InvoiceStatus.DUE, 14)
    draft = invoice(InvoiceStatus.DRAFT, 14)
    invoicing.send_due()
    invoicing.send_due()
    (mail,) = sink.mails
    assert mail["X-Idempotency-Key"] == f"invoice-{now(row).number}"
    assert mail["Message-ID"] == now(row).message_id
    assert now(row).status == InvoiceStatus.SENT
    assert now(row).sent_at
    assert now(draft).status == InvoiceStatus.DRAFT


def test_an_invoice_that_the_server_refused_is_due_again(sink: Sink) -> None:
    row = invoice(InvoiceStatus.DUE, 14)
    sink.answer = "451 try again later"
    assert invoicing.send_due().failed == 1
    assert now(row).status == InvoiceStatus.DUE
    assert "451" in (now(row).outcome or "")
    sink.answer = None
    invoicing.send_due()
    assert now(row).sent_at
    assert len(sink.mails) == 1


def test_a_mail_whose_session_broke_is_left_to_a_person_and_not_repeated(sink: Sink) -> None:
    from books import auditing

    row, other = invoice(InvoiceStatus.DUE, 14), invoice(InvoiceStatus.DUE, 14)
    sink.break_session = True
    invoicing.send_due()
    sent = len(sink.mails)
    invoicing.send_due()
    assert len(sink.mails) == sent
    assert now(row).status == InvoiceStatus.SENT
    assert now(row).sent_at is None
    assert "find out" in (now(other).outcome or "")
    auditing.nightly_audit()
    with session() as s:
        subjects = s.scalars(select(Finding.subject).where(Finding.kind == "mail_in_doubt")).all()
    assert f"invoice {now(row).number}" in subjects


def test_without_a_mail_server_nothing_is_claimed(migrated: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("BOOKS_SMTP_PORT", str(port))
    settings.cache_clear()
    row = invoice(InvoiceStatus.DUE, 14)
    assert invoicing.send_due().failed >= 1
    assert now(row).status == InvoiceStatus.DUE
    settings.cache_clear()


def test_only_a_mailed_invoice_whose_day_has_passed_becomes_overdue(migrated: object) -> None:
    late, in_doubt = invoice(InvoiceStatus.SENT, -1, mailed=True), invoice(InvoiceStatus.SENT, -1)
    on_its_day = invoice(InvoiceStatus.SENT, 0, mailed=True)
    invoicing.mark_overdue()
    assert now(late).status == InvoiceStatus.OVERDUE
    assert now(in_doubt).status == InvoiceStatus.SENT
    assert now(on_its_day).status == InvoiceStatus.SENT
