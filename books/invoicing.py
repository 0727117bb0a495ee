"""The morning's invoices: those whose day has passed become overdue, those that are released are mailed once.

A mail is an outside effect of a kind that cannot be asked about. Whatever can fail without the mail going out fails
before it is noted as called: no server, a sender or an address that it refuses. From there to the server's answer is
one command; a crash or a broken session in it leaves the mail in doubt. The invoice then needs a person, who looks for
its Message-ID (always the same for an invoice). It is never repeated blindly. An invoice that a person took back
before its mail was noted as called is not mailed until it is released again.

On failure of one invoice the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from books import outside
from books.calendar import today
from books.mail import deliver, greet, invoice_mail, outbound
from books.models import EffectKind, EffectStatus, Invoice, InvoiceStatus, OutsideEffect
from books.outside import Receipt, Unclear
from fleet.clock import clock
from fleet.logs import get_logger
from fleet.storage import session
from fleet.sweep import SweepResult, sweep

log = get_logger(__name__)

_BECOMES = {
    EffectStatus.WAITING: InvoiceStatus.DUE,
    EffectStatus.DONE: InvoiceStatus.SENT,
    EffectStatus.NEEDS_REVIEW: InvoiceStatus.NEEDS_REVIEW,
}


class InvoiceMail:
    """An invoice's mail: `subject` is "invoice 12"."""

    name, askable, gives_up = EffectKind.MAIL, False, False

    @contextmanager
    def ready(self, effect: OutsideEffect) -> Iterator[Callable[[], Receipt]]:
        with session() as s:
            mail = invoice_mail(s.get_one(Invoice, _invoice_id(effect)))
        with outbound() as server:
            greet(server, mail)
            yield lambda: deliver(server, mail)

    def ask(self, effect: OutsideEffect) -> Receipt | None:
        message_id = effect.body["message_id"]
        raise Unclear(f"a mail server cannot be asked; look for {message_id} in its log, or in the copies it keeps")

    def unwanted(self, s: Session, effect: OutsideEffect) -> str | None:
        invoice = s.get_one(Invoice, _invoice_id(effect), with_for_update={"read": True})
        return None if invoice.status == InvoiceStatus.DUE else f"its invoice is {invoice.status}"

    def moved(self, s: Session, effect: OutsideEffect, status: EffectStatus, outcome: str) -> None:
        if status is EffectStatus.NOT_SENT:
            return  # What a person made of it stands; released again, it is mailed.
        values: dict[str, Any] = {"status": _BECOMES[status], "outcome": outcome}
        if status is EffectStatus.DONE:
            values |= {"sent_at": clock.now(), "outcome": "mailed"}
        on_its_way = Invoice.status.in_((InvoiceStatus.DUE, InvoiceStatus.NEEDS_REVIEW))
        s.execute(update(Invoice).where(Invoice.id == _invoice_id(effect), on_its_way).values(**values))

    def message(self, effect: OutsideEffect) -> tuple[str, tuple[Any, ...]]:
        return "send_due_invoices", ()


def mark_overdue() -> int:
    """Turn sent invoices whose day has passed overdue; returns how many."""
    late = update(Invoice).where(Invoice.status == InvoiceStatus.SENT, Invoice.due_on < today())
    with session() as s:
        numbers = s.scalars(late.values(status=InvoiceStatus.OVERDUE).returning(Invoice.number)).all()
    log.info("invoices_overdue", count=len(numbers))
    return len(numbers)


def send_due(token: str) -> SweepResult:
    """Mail every invoice that is due, each in an SMTP session of its own: one that breaks harms no other."""
    with session() as s:
        due = s.scalars(select(Invoice.id).where(Invoice.status == InvoiceStatus.DUE).order_by(Invoice.id)).all()
    return sweep("send_due_invoices", due, lambda invoice_id: send_one(invoice_id, token))


def send_one(invoice_id: int, token: str) -> None:
    """Mail one invoice, unless it is not due, that was done, or is being done.

    Raises `MailNotSent`; `LeaseLost`; `DeadlineExceeded`.
    """
    with session() as s:
        invoice = s.get_one(Invoice, invoice_id)
        if invoice.status != InvoiceStatus.DUE:
            return
        mail = invoice_mail(invoice)
        key, message_id = mail["X-Idempotency-Key"], mail["Message-ID"]
        body = {"message_id": message_id}
        held = outside.intend(s, EffectKind.MAIL, f"invoice {invoice_id}", key=key, body=body, token=token)
        if held is None:
            return
        invoice.message_id = message_id
    outside.carry_out(InvoiceMail(), held, park=True, give_up=False)


def _invoice_id(effect: OutsideEffect) -> int:
    return int(effect.subject.removeprefix("invoice "))
