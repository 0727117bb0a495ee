"""The morning's invoices: those whose day has passed become overdue, those that are released are mailed once.

An invoice is claimed by `due` to `sent`, committed, before its mail is handed over. A refusal gives it back; a broken
session or a crash in between leaves it `sent` without `sent_at`, which the nightly audit reports: a person looks
whether the mail went out. It is never repeated blindly.

On failure of one invoice the others go on.
"""

from __future__ import annotations

import smtplib

from sqlalchemy import select, update

from books.calendar import today
from books.mail import MailNotSent, MailUncertain, hand_over, invoice_mail, outbound
from books.models import Invoice, InvoiceStatus
from fleet.clock import clock
from fleet.logs import get_logger
from fleet.storage import session
from fleet.sweep import SweepResult, sweep

log = get_logger(__name__)


def mark_overdue() -> int:
    """Turn sent invoices whose day has passed overdue; returns how many."""
    mailed = (Invoice.status == InvoiceStatus.SENT) & Invoice.sent_at.is_not(None)
    late = update(Invoice).where(mailed, Invoice.due_on < today())
    with session() as s:
        numbers = s.scalars(late.values(status=InvoiceStatus.OVERDUE).returning(Invoice.number)).all()
    log.info("invoices_overdue", count=len(numbers))
    return len(numbers)


def send_due() -> SweepResult:
    """Mail every invoice that is due, each in a session of its own: one that breaks casts no doubt on the next."""
    with session() as s:
        due = s.scalars(select(Invoice.id).where(Invoice.status == InvoiceStatus.DUE).order_by(Invoice.id)).all()
    return sweep("send_due_invoices", due, _send)


def _send(invoice_id: int) -> None:
    with outbound() as server:  # before the claim: where no server answers, nothing is in doubt
        _claim_and_mail(server, invoice_id)


def _claim_and_mail(server: smtplib.SMTP, invoice_id: int) -> None:
    claim = update(Invoice).where(Invoice.id == invoice_id, Invoice.status == InvoiceStatus.DUE)
    with session() as s:
        invoice = s.scalars(claim.values(status=InvoiceStatus.SENT, outcome=None).returning(Invoice)).one_or_none()
        if invoice is None:
            return
        mail = invoice_mail(invoice)
        invoice.message_id = mail["Message-ID"]
    try:
        hand_over(server, mail)
    except MailNotSent as error:
        _note(invoice_id, status=InvoiceStatus.DUE, message_id=None, outcome=f"not sent: {error}")
        raise
    except MailUncertain as error:
        _note(invoice_id, outcome=f"find out whether the mail {mail['Message-ID']} went out: {error}")
        raise
    _note(invoice_id, sent_at=clock.now(), outcome="mailed")


def _note(invoice_id: int, **values: object) -> None:
    claimed = Invoice.status == InvoiceStatus.SENT
    with session() as s:
        s.execute(update(Invoice).where(Invoice.id == invoice_id, claimed, Invoice.sent_at.is_(None)).values(**values))
