"""Invoice mails: built with a fixed message id and idempotency key, handed to the SMTP server once.

Not guaranteed: that a mail whose session broke after its content was sent did not go out; that is `MailUncertain`, and
a person decides. Everything before that point is `MailNotSent`, and it is safe to try again.
"""

from __future__ import annotations

import smtplib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from email.message import EmailMessage

from books.models import Invoice
from config.settings import settings
from fleet import deadline
from fleet.errors import FleetError

_TIMEOUT = timedelta(seconds=30)


class MailNotSent(FleetError):
    """Raised when the server did not take a mail, for certain."""


class MailUncertain(FleetError):
    """Raised when the session broke while a mail was handed over; it may have gone out."""


def invoice_mail(invoice: Invoice) -> EmailMessage:
    """The mail of an invoice; the same invoice always makes the same ids."""
    key = f"invoice-{invoice.number}"
    mail = EmailMessage()
    mail["From"] = settings().mail_from
    mail["To"] = invoice.customer_email
    mail["Subject"] = f"Rechnung {invoice.number} / Invoice {invoice.number}"
    mail["Message-ID"] = f"<{key}@{settings().mail_from.rpartition('@')[2]}>"
    mail["X-Idempotency-Key"] = key
    amount = f"{invoice.amount_cents // 100}.{invoice.amount_cents % 100:02d} {invoice.currency}"
    mail.set_content(
        f"{invoice.customer}\n\nInvoice {invoice.number}: {amount}, payable by {invoice.due_on.isoformat()}.\n"
    )
    return mail


@contextmanager
def outbound() -> Iterator[smtplib.SMTP]:
    """A session with the SMTP server.

    Raises `MailNotSent` if there is none.
    """
    known = settings()
    timeout = deadline.clamp(_TIMEOUT).total_seconds()
    try:
        server = smtplib.SMTP(known.smtp_host, known.smtp_port, timeout=timeout)
    except (OSError, smtplib.SMTPException) as error:
        deadline.check()
        where = f"{known.smtp_host}:{known.smtp_port}"
        raise MailNotSent(
            f"no SMTP server answers at {where} ({type(error).__name__}); the next pass tries again"
        ) from error
    with server:
        yield server


def hand_over(server: smtplib.SMTP, mail: EmailMessage) -> None:
    """Give one mail to the server.

    Raises `MailNotSent` or `MailUncertain`.
    """
    if server.sock is not None:
        server.sock.settimeout(deadline.clamp(_TIMEOUT).total_seconds())
    try:
        server.send_message(mail)
    except (
        smtplib.SMTPSenderRefused,
        smtplib.SMTPRecipientsRefused,
        smtplib.SMTPDataError,
        smtplib.SMTPHeloError,
    ) as error:
        raise MailNotSent(f"the mail server refused it: {error}") from error
    except (OSError, smtplib.SMTPException) as error:
        raise MailUncertain(f"the session broke while it was handed over ({type(error).__name__})") from error
