"""Work that waits for the database, and the alarm."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dramatiq import Message

from fleet import Budget, Retry, queue
from fleet.actor import current_message_id

housekeeping = queue("housekeeping")


@housekeeping.actor(
    budget=Budget(
        soft=timedelta(seconds=20),
        hard=timedelta(seconds=40),
        because="two round trips to Redis; the next look comes within the minute and must find a free thread",
    ),
    retry=Retry(attempts=1, first=timedelta(seconds=1), longest=timedelta(seconds=1)),
)
def check_queue_health() -> None:
    """Judge what stands in the queues."""
    from books import queue_health

    queue_health.check()


@housekeeping.actor  # the lane's budget
def nightly_audit() -> None:
    """Note what does not fit together in the books."""
    from books import auditing

    auditing.nightly_audit()


@housekeeping.actor  # the lane's budget
def mark_overdue_invoices() -> None:
    """Turn invoices overdue whose day has passed."""
    from books import invoicing

    invoicing.mark_overdue()


def mail_lost(message: Message[Any], reason: str) -> None:
    from books import outside

    outside.let_go(message, reason)


@housekeeping.actor(
    on_lost=mail_lost,
    budget=Budget(
        soft=timedelta(minutes=10),
        hard=timedelta(minutes=12),
        because="a morning's invoices, each in an SMTP session of its own, on a mail server that greets slowly",
    ),
)
def send_due_invoices() -> None:
    """Mail every released invoice once."""
    from books import invoicing

    invoicing.send_due(token=current_message_id())


@housekeeping.actor(on_lost=mail_lost)  # the lane's budget
def mail_summary(effect_id: int) -> None:
    """Mail what became of an import or a batch, once."""
    from books import summaries

    summaries.send(effect_id, token=current_message_id())


def import_lost(message: Message[Any], reason: str) -> None:
    from books import importing

    importing.import_lost(message, reason)


@housekeeping.actor(
    on_lost=import_lost,
    budget=Budget(
        soft=timedelta(minutes=10),
        hard=timedelta(minutes=15),
        because="a year of one customer's rows, 100,000, in commits of a hundred",
    ),
)
def import_csv(job_id: int) -> None:
    """Take a customer's CSV into the books."""
    from books import importing

    importing.import_csv(job_id, token=current_message_id())
