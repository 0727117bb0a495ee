"""Mails: built with a fixed message id and idempotency key, handed to the SMTP server once.

Beyond this host only under TLS, begun by STARTTLS, to a server whose certificate is of an authority of the system's
(`SSL_CERT_FILE` names others) and names `BOOKS_SMTP_HOST`; a login, where the settings have one, comes after that.

`outbound` and `greet` do everything up to the content: what fails there is `MailNotSent`, and safe to try again. Only
`deliver` sends the content.

Not guaranteed: that a mail whose session broke in `deliver` did not go out; that is `MailUncertain`, and a person
decides. No error holds an address: a server's own words may, so only their code is kept.
"""

from __future__ import annotations

import smtplib
import ssl
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
    """A session with the SMTP server: encrypted and logged in, as the settings want it.

    Raises `MailNotSent` if there is none.
    """
    server = _connected()
    try:
        _protect(server)
        _log_in(server)
        yield server
    finally:
        with suppress(OSError, smtplib.SMTPException):  # a goodbye that fails takes back no mail
            server.quit()
        server.close()


def _connected() -> smtplib.SMTP:
    known = settings()
    timeout = deadline.clamp(_TIMEOUT).total_seconds()
    try:
        return smtplib.SMTP(known.smtp_host, known.smtp_port, timeout=timeout)
    except (OSError, smtplib.SMTPException) as error:
        deadline.check()
        what = f"no SMTP server answers at {_where()} ({type(error).__name__}); the next pass tries again"
        raise MailNotSent(what) from error


def _protect(server: smtplib.SMTP) -> None:
    """Go on under TLS, if the settings want it."""
    if not settings().smtp_starttls:
        return
    _clamp(server)
    try:
        server.starttls(context=ssl.create_default_context())
    except smtplib.SMTPNotSupportedError as error:
        what = f"the SMTP server at {_where()} offers no STARTTLS, and without it nothing is sent (BOOKS_SMTP_TLS)"
        raise MailNotSent(what) from error
    except ssl.SSLCertVerificationError as error:
        what = f"the certificate of the SMTP server at {_where()} is not believed: {error.verify_message}"
        raise MailNotSent(f"{what}. BOOKS_SMTP_HOST must be a name in it, SSL_CERT_FILE its authority") from error
    except (OSError, smtplib.SMTPException) as error:
        deadline.check()
        raise MailNotSent(f"no TLS with the SMTP server at {_where()} ({type(error).__name__})") from error


def _log_in(server: smtplib.SMTP) -> None:
    """Log in, if the settings have a user. No error holds what the server said: it may repeat the user."""
    known = settings()
    if not known.smtp_user:
        return
    _clamp(server)
    try:
        server.login(known.smtp_user, known.smtp_password)
    except smtplib.SMTPAuthenticationError as error:
        what = f"the SMTP server at {_where()} refused BOOKS_SMTP_USER with BOOKS_SMTP_PASSWORD ({error.smtp_code})"
        raise MailNotSent(what) from None
    except (OSError, smtplib.SMTPException) as error:
        deadline.check()
        if isinstance(error, smtplib.SMTPServerDisconnected) or not isinstance(error, smtplib.SMTPException):
            raise MailNotSent(f"the session broke at the login at {_where()} ({type(error).__name__})") from None
        what = f"the SMTP server at {_where()} offers no login of a kind that is known here"
        raise MailNotSent(f"{what}; take BOOKS_SMTP_USER and BOOKS_SMTP_PASSWORD away if it wants none") from None


def _where() -> str:
    return f"{settings().smtp_host}:{settings().smtp_port}"


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
