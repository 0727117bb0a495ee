"""An invoice is mailed once, and one whose day has passed is overdue."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from email import message_from_bytes
from email.message import Message
from typing import Any
from uuid import uuid4

import pytest
from aiosmtpd.controller import Controller
from sqlalchemy import select

from books import invoicing, outside
from books.calendar import today
from books.mail import invoice_mail
from books.models import EffectKind, EffectStatus, Finding, Invoice, InvoiceStatus, OutsideEffect
from config.settings import settings
from fleet.clock import clock
from fleet.storage import session
from tests.ports import free_port


class Sink:
    """Takes mails, unless told what to answer instead."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.answer: str | None = None
        self.break_session = False
        self.refuse = False
        self.rude = False

    async def handle_QUIT(self, server: Any, session: Any, envelope: Any) -> str:
        if self.rude:
            server.transport.abort()
        return "221 bye"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if self.refuse:
            return f"550 no such person: {address}"
        envelope.rcpt_tos.append(address)
        return "250 taken"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.break_session:
            server.transport.abort()
        if self.answer:
            return self.answer
        self.mails.append(message_from_bytes(envelope.content))
        return "250 taken"


@pytest.fixture
def sink(migrated: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    port = free_port()
    taken = Sink()
    controller = Controller(taken, hostname="127.0.0.1", port=port, enable_SMTPUTF8=True)
    controller.start()
    monkeypatch.setenv("BOOKS_SMTP_PORT", str(port))
    settings.cache_clear()
    yield taken
    controller.stop()
    settings.cache_clear()


def invoice(status: InvoiceStatus, days: int, mailed: bool = False, email: str = "office@customer.example") -> int:
    with session() as s:
        row = Invoice(
            number=f"R-{uuid4().hex[:8]}",
            customer="c",
            customer_email=email,
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
    invoicing.send_due(token="m1")
    invoicing.send_due(token="m2")
    (mail,) = sink.mails
    assert mail["X-Idempotency-Key"] == f"invoice-{now(row).number}"
    assert mail["Message-ID"] == now(row).message_id
    assert now(row).status == InvoiceStatus.SENT
    assert now(row).sent_at
    assert now(draft).status == InvoiceStatus.DRAFT


def test_an_invoice_that_the_server_refused_is_due_again(sink: Sink) -> None:
    row = invoice(InvoiceStatus.DUE, 14)
    sink.answer = "451 try again later"
    assert invoicing.send_due(token="m1").failed == 1
    assert now(row).status == InvoiceStatus.DUE
    assert "451" in (now(row).outcome or "")
    sink.answer = None
    invoicing.send_due(token="m2")
    assert now(row).sent_at
    assert len(sink.mails) == 1


def test_a_mail_that_a_dead_worker_may_have_sent_is_parked_by_the_next_pass(sink: Sink) -> None:
    row = invoice(InvoiceStatus.DUE, 14)
    with session() as s:
        held = outside.intend(s, EffectKind.MAIL, f"invoice {row}", key="k", body={"message_id": "<m@x>"}, token="m1")
        assert held is not None
        held.row.called_at = clock.now()
    invoicing.send_due(token="m2")
    assert now(row).status == InvoiceStatus.DUE
    invoicing.send_due(token="m1")
    assert now(row).status == InvoiceStatus.NEEDS_REVIEW
    assert "look for <m@x>" in (now(row).outcome or "")
    assert sink.mails == []


def held_by_a_dead_worker(row: int) -> None:
    """Its mail is written down, and not yet noted as called."""
    mail = invoice_mail(now(row))
    body, key = {"message_id": mail["Message-ID"]}, mail["X-Idempotency-Key"]
    with session() as s:
        held = outside.intend(s, EffectKind.MAIL, f"invoice {row}", key=key, body=body, token="m1")
        assert held is not None
        held.row.lease_until = clock.real_now() - timedelta(seconds=1)


def becomes(row: int, status: InvoiceStatus) -> None:
    with session() as s:
        s.get_one(Invoice, row).status = status


def mail_of(row: int) -> tuple[str, str | None]:
    """Status and outcome of an invoice's mail."""
    with session() as s:
        mail = s.scalars(select(OutsideEffect).where(OutsideEffect.subject == f"invoice {row}")).one()
        return mail.status, mail.outcome


def test_an_invoice_that_was_taken_back_is_not_mailed_by_a_janitor_until_it_is_released_again(sink: Sink) -> None:
    row = invoice(InvoiceStatus.DUE, 14)
    held_by_a_dead_worker(row)
    becomes(row, InvoiceStatus.DRAFT)
    invoicing.send_due(token="m1")
    outside.resolve(token="janitor")
    assert sink.mails == []
    assert mail_of(row) == (EffectStatus.NOT_SENT, "not sent: its invoice is draft")
    assert (now(row).status, now(row).outcome) == (InvoiceStatus.DRAFT, None)
    becomes(row, InvoiceStatus.DUE)
    for token in ("m2", "m3"):
        invoicing.send_due(token=token)
        outside.resolve(token="janitor")
    assert (now(row).status, len(sink.mails)) == (InvoiceStatus.SENT, 1)


def test_a_janitor_mails_what_a_dead_worker_held_and_is_still_due(sink: Sink) -> None:
    row = invoice(InvoiceStatus.DUE, 14)
    held_by_a_dead_worker(row)
    outside.resolve(token="janitor")
    assert (now(row).status, len(sink.mails)) == (InvoiceStatus.SENT, 1)


def test_four_passes_at_once_mail_an_invoice_once(sink: Sink) -> None:
    rows = [invoice(InvoiceStatus.DUE, 14) for _ in range(5)]
    with ThreadPoolExecutor(4) as passes:
        list(passes.map(lambda number: invoicing.send_due(token=f"m{number}"), range(4)))
    assert {now(row).status for row in rows} == {InvoiceStatus.SENT}
    assert len(sink.mails) == len({mail["Message-ID"] for mail in sink.mails}) == 5


def test_a_server_that_breaks_off_its_goodbye_has_the_mail_all_the_same(sink: Sink) -> None:
    row = invoice(InvoiceStatus.DUE, 14)
    sink.rude = True
    assert invoicing.send_due(token="m1").failed == 0
    assert (now(row).status, len(sink.mails)) == (InvoiceStatus.SENT, 1)


def test_a_refused_address_is_named_nowhere(sink: Sink) -> None:
    row = invoice(InvoiceStatus.DUE, 14)
    sink.refuse = True
    invoicing.send_due(token="m1")
    assert (now(row).status, now(row).sent_at) == (InvoiceStatus.DUE, None)
    assert "550" in (now(row).outcome or "")
    assert "office" not in (now(row).outcome or "")
    sink.refuse = False
    invoicing.send_due(token="m2")
    assert now(row).sent_at


def test_an_invoice_to_an_address_with_an_umlaut_is_mailed(sink: Sink) -> None:
    row = invoice(InvoiceStatus.DUE, 14, email="büro@customer.example")
    invoicing.send_due(token="m1")
    assert now(row).sent_at
    assert len(sink.mails) == 1


def test_a_mail_whose_session_broke_is_left_to_a_person_and_not_repeated(sink: Sink) -> None:
    from books import auditing

    row, other = invoice(InvoiceStatus.DUE, 14), invoice(InvoiceStatus.DUE, 14)
    sink.break_session = True
    invoicing.send_due(token="m2")
    sent = len(sink.mails)
    invoicing.send_due(token="m2")
    assert len(sink.mails) == sent
    assert (now(row).status, now(row).sent_at) == (InvoiceStatus.NEEDS_REVIEW, None)
    for one in (now(row), now(other)):
        assert (one.outcome or "").startswith("find out whether it is there")
        assert one.message_id
        assert one.message_id in (one.outcome or "")
    auditing.nightly_audit()
    with session() as s:
        subjects = s.scalars(select(Finding.subject).where(Finding.kind == "needs_review")).all()
    assert f"mail of invoice {row}" in subjects


def test_without_a_mail_server_nothing_is_claimed(migrated: object, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("BOOKS_SMTP_PORT", str(port))
    settings.cache_clear()
    row = invoice(InvoiceStatus.DUE, 14)
    assert invoicing.send_due(token="m1").failed >= 1
    assert now(row).status == InvoiceStatus.DUE
    settings.cache_clear()


def test_only_a_mailed_invoice_whose_day_has_passed_becomes_overdue(migrated: object) -> None:
    late, in_doubt = invoice(InvoiceStatus.SENT, -1, mailed=True), invoice(InvoiceStatus.NEEDS_REVIEW, -1)
    on_its_day = invoice(InvoiceStatus.SENT, 0, mailed=True)
    invoicing.mark_overdue()
    assert now(late).status == InvoiceStatus.OVERDUE
    assert now(in_doubt).status == InvoiceStatus.NEEDS_REVIEW
    assert now(on_its_day).status == InvoiceStatus.SENT
