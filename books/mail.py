"""Mails: built with a fixed message id and idempotency key, handed to the SMTP server once.

`outbound` and `greet` do everything up to the content: what fails there is `MailNotSent`, and safe to try again. Only
`deliver` sends the content.

Not guaranteed: that a mail whose session broke in `deliver` did not go out; that is `MailUncertain`, and a person
decides. No error holds an address: a server's own words may, so only their code is kept.
"""

from __future__ import annotations

import smtplib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from email.message import EmailMessage
from email.policy import SMTP
from functools import partial

from books.models import Invoice
from books.outside.answers import NotTaken, Receipt, Unclear
from config.settings import settings
from fleet import deadline

_TIMEOUT = timedelta(seconds=30)


class MailNotSent(NotTaken):
    """Raised when the server did not take a mail, for certain."""


class MailUncertain(Unclear):
    """Raised when the session broke while a mail was handed over; it may have gone out."""


def invoice_mail(invoice: Invoice) -> EmailMessage:
    """The mail of an invoice; the same invoice always makes the same ids."""
    amount = f"{invoice.amount_cents // 100}.{invoice.amount_cents % 100:02d} {invoice.currency}"
    return keyed_mail(
        f"invoice-{invoice.number}",
        to=invoice.customer_email,
        subject=f"Rechnung {invoice.number} / Invoice {invoice.number}",
        text=f"{invoice.customer}\n\nInvoice {invoice.number}: {amount}, payable by {invoice.due_on.isoformat()}.\n",
    )


def keyed_mail(key: str, *, to: str, subject: str, text: str) -> EmailMessage:
    """A mail whose ids are made of its key."""
    mail = EmailMessage()
    mail["From"] = settings().mail_from
    mail["To"] = to
    mail["Subject"] = subject
    mail["Message-ID"] = message_id(key)
    mail["X-Idempotency-Key"] = key
    mail.set_content(text)
    return mail


def message_id(key: str) -> str:
    """The Message-ID of the mail with this key."""
    return f"<{key}@{settings().mail_from.rpartition('@')[2]}>"


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
    try:
        yield server
    finally:
        with suppress(OSError, smtplib.SMTPException):  # a goodbye that fails takes back no mail
            server.quit()
        server.close()


def greet(server: smtplib.SMTP, mail: EmailMessage) -> None:
    """Have the server take sender and recipient of a mail, and nothing of it yet.

    Raises `MailNotSent`.
    """
    _clamp(server)
    try:
        server.ehlo_or_helo_if_needed()
        sender, recipient = (mail[name].addresses[0].addr_spec for name in ("From", "To"))
        options = [] if (sender + recipient).isascii() else ["SMTPUTF8"]
        for command in (partial(server.mail, sender, options), partial(server.rcpt, recipient)):
            code, _ = command()
            if code not in (250, 251):
                raise MailNotSent(f"the mail server refused sender or recipient ({code})")
    except (OSError, smtplib.SMTPException) as error:
        deadline.check()
        raise MailNotSent(f"the session broke before anything was sent ({type(error).__name__})") from error


def deliver(server: smtplib.SMTP, mail: EmailMessage) -> Receipt:
    """Send the content of a mail whose sender and recipient were taken.

    Raises `MailNotSent` if the server refused it, `MailUncertain` if its answer did not come.
    """
    _clamp(server)
    try:
        code, _ = server.data(mail.as_bytes(policy=SMTP))  # headers in ASCII, whatever is in them
    except smtplib.SMTPDataError as error:
        raise MailNotSent(f"the mail server refused it ({error.smtp_code})") from error
    except (OSError, smtplib.SMTPException) as error:
        deadline.check()
        what = f"the session broke while {mail['Message-ID']} was handed over ({type(error).__name__})"
        raise MailUncertain(what) from error
    if 400 <= code < 600:
        raise MailNotSent(f"the mail server refused it ({code})")
    if code != 250:
        raise MailUncertain(f"the server's answer to {mail['Message-ID']} was no answer ({code})")
    return Receipt(mail["Message-ID"])


def _clamp(server: smtplib.SMTP) -> None:
    if server.sock is not None:
        server.sock.settimeout(deadline.clamp(_TIMEOUT).total_seconds())
