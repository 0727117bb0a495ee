"""Fills the books for a night: what customers left in the evening, and what should have become of it by morning.

A pure function of its arguments. Sends nothing: `Expected.messages` says what a web process would have sent for these
rows, and the night sends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from random import Random
from typing import Any, Protocol

from sqlalchemy.orm import Session

from books.models import (
    AccountStatus,
    AgentRun,
    Attachment,
    AttachmentStatus,
    BankAccount,
    BankConnection,
    Base,
    ImportJob,
    ImportStatus,
    Invoice,
    InvoiceStatus,
    RunKind,
    RunStatus,
    Subscription,
    SubscriptionStatus,
    UploadBatch,
)
from books.seed_files import BROKEN_ROWS, GOOD_ROWS

PREPARE_RUNS = 15
SUBMIT_RUNS = 6
EVAL_RUNS = 8
LATE_INVOICES = 4
DUE_INVOICES = 6
OPEN_INVOICES = 2
PAYING_SUBSCRIPTIONS = 40
DECLINED_SUBSCRIPTIONS = 3
OTHER_SUBSCRIPTIONS = 4
_INVOICES_A_NIGHT = 1_000  # numbers, of which few are used
BATCH_EMAIL = "office1@uploads.example"
IMPORT_EMAIL = "office2@uploads.example"


class SeededAccount(Protocol):
    """An account as the sandbox bank's `seed_connections` gives it."""

    @property
    def id(self) -> str: ...
    @property
    def iban(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def currency(self) -> str: ...


class SeededConnection(Protocol):
    """A connection as the sandbox bank's `seed_connections` gives it."""

    @property
    def requisition_id(self) -> str: ...
    @property
    def institution(self) -> str: ...
    @property
    def accounts(self) -> Sequence[SeededAccount]: ...


@dataclass
class Expected:
    """What the morning should find, by row id where there are rows; `messages` are (actor, arguments) to be sent.

    `imports` maps a job to its (status, rows done, rows failed). Which accounts end `consent_expired` is the bank's to
    say: `expired_requisition` of its seed.
    """

    accounts: list[int] = field(default_factory=list)
    batch: int = 0
    documents: list[int] = field(default_factory=list)
    broken_documents: list[int] = field(default_factory=list)
    backlog_documents: list[int] = field(default_factory=list)
    uploads: list[int] = field(default_factory=list)
    imports: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    prepare_runs: list[int] = field(default_factory=list)
    submit_runs: list[int] = field(default_factory=list)
    eval_runs: list[int] = field(default_factory=list)
    overdue_invoices: list[int] = field(default_factory=list)
    mailed_invoices: list[int] = field(default_factory=list)
    untouched_invoices: list[int] = field(default_factory=list)
    paying_subscriptions: list[int] = field(default_factory=list)
    declined_subscriptions: list[int] = field(default_factory=list)
    other_subscriptions: list[int] = field(default_factory=list)
    messages: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)


def seed_night(
    s: Session,
    *,
    connections: Sequence[SeededConnection],
    receipts: Sequence[Path],
    broken_receipts: Sequence[Path],
    good_csv: Path,
    broken_csv: Path,
    seed: int,
    today: date,
    backlog: Sequence[Path] = (),
    uploads: Sequence[Path] = (),
    submissions: int = SUBMIT_RUNS,
    evals: int = EVAL_RUNS,
    night: int = 0,
) -> Expected:
    """Write a night's rows in the caller's transaction and say what should become of them.

    `receipts`, the `backlog` and the `uploads` can be read, `broken_receipts` cannot; `good_csv` and `broken_csv` are
    `books.seed_files`' own. Most of the backlog is one customer's. Each further `night` in the same books has a number
    and a seed of its own, and no `connections`: they are there.
    """
    expected, rng = Expected(), Random(f"night {seed}")
    _accounts(s, expected, connections)
    _documents(s, expected, receipts, broken_receipts)
    expected.backlog_documents = _added(s, [_of_backlog(number, path) for number, path in enumerate(backlog)])
    _imports(s, expected, good_csv, broken_csv, night)
    _runs(s, expected, rng, seed, submissions, evals)
    _uploads(s, expected, uploads)
    _invoices(s, expected, rng, today, night)
    _subscriptions(s, expected, rng, today)
    return expected


def _added(s: Session, rows: Sequence[Base]) -> list[int]:
    s.add_all(rows)
    s.flush()
    return [row.id for row in rows]  # type: ignore[attr-defined]  # every record here has an id


def _accounts(s: Session, expected: Expected, connections: Sequence[SeededConnection]) -> None:
    for number, connection in enumerate(connections):
        customer = f"customer {number}"
        row = BankConnection(
            requisition_id=connection.requisition_id, institution=connection.institution, customer=customer
        )
        (connection_id,) = _added(s, [row])
        accounts = [
            BankAccount(
                connection_id=connection_id,
                external_id=account.id,
                iban=account.iban,
                name=account.name,
                currency=account.currency,
                customer=customer,
                status=AccountStatus.IDLE,
            )
            for account in connection.accounts
        ]
        expected.accounts += _added(s, accounts)


def _documents(s: Session, expected: Expected, receipts: Sequence[Path], broken: Sequence[Path]) -> None:
    (batch_id,) = _added(s, [UploadBatch(customer="customer 1", email=BATCH_EMAIL)])

    def rows(paths: Sequence[Path]) -> list[Attachment]:
        return [
            Attachment(batch_id=batch_id, customer="customer 1", path=str(path), status=AttachmentStatus.QUEUED)
            for path in paths
        ]

    expected.batch = batch_id
    expected.documents = _added(s, rows(receipts))
    expected.broken_documents = _added(s, rows(broken))
    expected.messages.append(("extract_batch", (batch_id,)))


def _of_backlog(number: int, path: Path) -> Attachment:
    customer = f"customer {4 + number % 3}" if number % 5 == 0 else "customer 3"
    return Attachment(customer=customer, path=str(path), status=AttachmentStatus.QUEUED, backlog=True)


def _uploads(s: Session, expected: Expected, uploads: Sequence[Path]) -> None:
    """One file each, without a batch; a message each."""
    rows = [Attachment(customer="customer 7", path=str(path), status=AttachmentStatus.QUEUED) for path in uploads]
    expected.uploads = _added(s, rows)
    expected.messages += [("extract_data_from_attachment", (row_id,)) for row_id in expected.uploads]


def _imports(s: Session, expected: Expected, good_csv: Path, broken_csv: Path, night: int) -> None:
    manual = BankAccount(
        external_id=f"manual:customer 2:{night}" if night else "manual:customer 2",
        name="Kasse",
        currency="EUR",
        customer="customer 2",
        status=AccountStatus.IDLE,
    )
    (account_id,) = _added(s, [manual])
    good, broken = _added(
        s,
        [
            ImportJob(account_id=account_id, path=str(path), email=IMPORT_EMAIL, status=ImportStatus.QUEUED)
            for path in (good_csv, broken_csv)
        ],
    )
    expected.imports = {
        good: (ImportStatus.DONE, GOOD_ROWS, 0),
        broken: (ImportStatus.DONE_WITH_ERRORS, BROKEN_ROWS - 1, 1),
    }
    expected.messages += [("import_csv", (good,)), ("import_csv", (broken,))]


def _runs(s: Session, expected: Expected, rng: Random, seed: int, submissions: int, evals: int) -> None:
    def run(kind: RunKind, status: RunStatus, number: int, given: dict[str, Any]) -> AgentRun:
        key = f"night:{seed}:{kind}:{number}"
        return AgentRun(
            kind=kind, status=status, idempotency_key=key, customer=f"customer {rng.randrange(1, 30)}", input=given
        )

    task = {"task": "Prepare the advance VAT return of the last month and name what is still missing."}
    prepared = {"task": "Hand in the advance VAT return.", "proposal": {"vat_payable_cents": rng.randrange(10**6)}}
    choices = ["Energy", "Rent", "Fuel and vehicles", "Other"]
    question = {"text": "Stadtwerke Musterstadt, Abschlag Strom", "choices": choices, "expected": "Energy"}
    expected.prepare_runs = _added(s, [run(RunKind.PREPARE, RunStatus.QUEUED, n, task) for n in range(PREPARE_RUNS)])
    expected.submit_runs = _added(s, [run(RunKind.SUBMIT, RunStatus.APPROVED, n, prepared) for n in range(submissions)])
    expected.eval_runs = _added(s, [run(RunKind.EVAL, RunStatus.QUEUED, n, question) for n in range(evals)])
    expected.messages += [("prepare_run", (run_id,)) for run_id in expected.prepare_runs]
    expected.messages += [("submit_approved_run", (run_id,)) for run_id in expected.submit_runs]


def _invoices(s: Session, expected: Expected, rng: Random, today: date, night: int) -> None:
    def invoice(number: int, status: InvoiceStatus, due_on: date) -> Invoice:
        number += night * _INVOICES_A_NIGHT
        return Invoice(
            number=f"{today.year}-{number:04d}",
            customer=f"customer {rng.randrange(1, 30)}",
            customer_email=f"office{number}@customer.example",
            amount_cents=rng.randrange(2_000, 500_000),
            currency="EUR",
            due_on=due_on,
            status=status,
        )

    def mailed(number: int, due_on: date) -> Invoice:
        row = invoice(number, InvoiceStatus.SENT, due_on)
        row.sent_at = datetime.combine(due_on - timedelta(days=14), time(12), UTC)
        return row

    late = [mailed(n, today - timedelta(days=rng.randint(1, 20))) for n in range(LATE_INVOICES)]
    due = [invoice(100 + n, InvoiceStatus.DUE, today + timedelta(days=14)) for n in range(DUE_INVOICES)]
    still_open = [mailed(200 + n, today + timedelta(days=3)) for n in range(OPEN_INVOICES)]
    drafts = [invoice(300, InvoiceStatus.DRAFT, today + timedelta(days=30))]
    expected.overdue_invoices = _added(s, late)
    expected.mailed_invoices = _added(s, due)
    expected.untouched_invoices = _added(s, [*still_open, *drafts])


def _subscriptions(s: Session, expected: Expected, rng: Random, today: date) -> None:
    def subscription(method: str, next_period: date, status: SubscriptionStatus) -> Subscription:
        plan, cents = rng.choice([("ledger", 1_900), ("payroll", 4_900), ("office", 9_900)])
        return Subscription(
            customer=f"customer {rng.randrange(1, 30)}",
            plan=plan,
            amount_cents=cents,
            currency="EUR",
            method=method,
            billing_day=next_period.day,
            next_period=next_period,
            status=status,
        )

    def due(method: str) -> Subscription:
        return subscription(method, today - timedelta(days=rng.randrange(3)), SubscriptionStatus.ACTIVE)

    later = [subscription("pm_1", today + timedelta(days=1 + n), SubscriptionStatus.ACTIVE) for n in range(2)]
    ended = [subscription("pm_1", today, SubscriptionStatus.CANCELLED) for _ in range(OTHER_SUBSCRIPTIONS - 2)]
    expected.paying_subscriptions = _added(s, [due(f"pm_{n}") for n in range(PAYING_SUBSCRIPTIONS)])
    expected.declined_subscriptions = _added(s, [due(f"pm_declined_{n}") for n in range(DECLINED_SUBSCRIPTIONS)])
    expected.other_subscriptions = _added(s, [*later, *ended])
