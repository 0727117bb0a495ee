"""The nightly audit: what does not fit together in the books becomes a finding, once a kind and subject.

Checks: accounts not synced for a day, consents that ended, balances that the booked rows do not add up to, rows that
say running though their lease has lapsed, what left the house and is in doubt. A finding that stands is not written
again.

Not guaranteed: that a balance is compared at all; bank and books must have been asked within an hour of each other,
else the difference would be rows that came in between. What an account held before its first row is taken for right at
its first audit. On failure of one check the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import islice
from typing import NamedTuple

from sqlalchemy import ColumnElement, ScalarSelect, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from books.models import (
    AccountStatus,
    AgentRun,
    Attachment,
    BankAccount,
    EffectStatus,
    Finding,
    ImportJob,
    OutsideEffect,
    Transaction,
    UploadBatch,
)
from fleet.clock import clock
from fleet.logs import get_logger
from fleet.storage import session
from fleet.storage.leases import RUNNING
from fleet.sweep import SweepResult, sweep

log = get_logger(__name__)

SYNCED_WITHIN = timedelta(hours=26)  # three slots a day: all of them missed, and two hours
FINDINGS_A_STATEMENT = 500
_ASKED_TOGETHER = timedelta(hours=1)
_STREAMED = {"yield_per": FINDINGS_A_STATEMENT}  # of the checks that may see every account


class Seen(NamedTuple):
    """What a check saw: on what, and in words."""

    subject: str
    message: str


def nightly_audit() -> SweepResult:
    """Run every check; each writes what it saw in a transaction of its own."""
    return sweep("nightly_audit", CHECKS.items(), lambda check: _audit(*check), key=lambda check: check[0])


def _audit(kind: str, check: Callable[[Session], Iterator[Seen]]) -> None:
    found = 0
    once = insert(Finding).on_conflict_do_nothing(index_elements=[Finding.kind, Finding.subject])
    with session() as s:
        seen = check(s)
        while some := list(islice(seen, FINDINGS_A_STATEMENT)):
            found += len(some)
            s.execute(once.values([{"kind": kind, "found_at": clock.now(), **one._asdict()} for one in some]))
    log.info("audited", check=kind, found=found)


def _not_synced(s: Session) -> Iterator[Seen]:
    long_ago = clock.now() - SYNCED_WITHIN
    unsynced = or_(BankAccount.last_synced_at.is_(None), BankAccount.last_synced_at < long_ago)
    expected = BankAccount.connection_id.is_not(None) & (BankAccount.status != AccountStatus.CONSENT_EXPIRED)
    accounts = select(BankAccount).where(expected, unsynced).order_by(BankAccount.id)
    for account in s.scalars(accounts, execution_options=_STREAMED):
        last = account.last_synced_at
        when = f"last synced at {last:%Y-%m-%d %H:%M} UTC" if last else "never synced"
        yield Seen(f"account {account.id}", f"{when}; {account.outcome or 'no sync has ended'}")


def _consent_expired(s: Session) -> Iterator[Seen]:
    ended = select(BankAccount.id).where(BankAccount.status == AccountStatus.CONSENT_EXPIRED)
    for account_id in s.scalars(ended, execution_options=_STREAMED):
        yield Seen(f"account {account_id}", "its owner has to connect the bank again")


def _booked_cents() -> ScalarSelect[int]:
    booked = (Transaction.account_id == BankAccount.id) & Transaction.booked
    cents = func.coalesce(func.sum(Transaction.amount_cents), 0)
    return select(cents).where(booked).correlate(BankAccount).scalar_subquery()


def _asked_together() -> ColumnElement[bool]:
    apart = BankAccount.balance_at - BankAccount.last_synced_at
    return apart.between(-_ASKED_TOGETHER, _ASKED_TOGETHER)


def _balance_mismatch(s: Session) -> Iterator[Seen]:
    new = update(BankAccount).where(BankAccount.opening_cents.is_(None), _asked_together())
    s.execute(new.values(opening_cents=BankAccount.balance_cents - _booked_cents()))
    difference = BankAccount.balance_cents - BankAccount.opening_cents - _booked_cents()
    differing = select(BankAccount.id, difference).where(difference != 0, _asked_together())
    for account_id, cents in s.execute(differing, execution_options=_STREAMED):
        yield Seen(f"account {account_id}", f"balance and booked rows differ by {cents:.0f} cents")


def _stuck(s: Session) -> Iterator[Seen]:
    for model in (BankAccount, Attachment, AgentRun, ImportJob, UploadBatch, OutsideEffect):
        lapsed = (model.status == RUNNING) & (model.lease_until < func.now())
        for row_id in s.scalars(select(model.id).where(lapsed)):
            yield Seen(f"{model.__name__} {row_id}", "says running, and its lease has lapsed")


def _needs_review(s: Session) -> Iterator[Seen]:
    parked = OutsideEffect.status == EffectStatus.NEEDS_REVIEW
    for effect in s.scalars(select(OutsideEffect).where(parked).order_by(OutsideEffect.id)):
        yield Seen(f"{effect.kind} of {effect.subject}", effect.outcome or "find out whether the other side has it")


CHECKS: dict[str, Callable[[Session], Iterator[Seen]]] = {
    "not_synced": _not_synced,
    "consent_expired": _consent_expired,
    "balance_mismatch": _balance_mismatch,
    "stuck": _stuck,
    "needs_review": _needs_review,
}
