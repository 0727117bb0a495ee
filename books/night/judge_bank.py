"""Judges the bank side: every connected account synced, every row served stored once, the crash made good.

What the bank served is its own truth (`/sandbox/truth`); nothing of it passes through the code under test.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import httpx
from sqlalchemy import func, select

from books.models import AccountStatus, BankAccount, Transaction
from books.night.faults import RESTART_LIMIT, Crash
from books.night.logs import count_events
from books.night.plan import Plan
from books.night.report import Line, judged, said
from books.night.world import World
from books.seeding import Expected
from fleet.storage import session

SECTION = "bank"


def judge(plan: Plan, world: World, expected: Expected, crash: Crash | None) -> Iterator[Line]:
    """Lines on accounts, transactions and the killed worker."""
    truth = httpx.get(f"{world.bank_url}/sandbox/truth", timeout=60).raise_for_status().json()
    served = {account["id"]: account for account in truth["accounts"]}
    with session() as s:
        accounts = s.scalars(select(BankAccount).where(BankAccount.id.in_(expected.accounts))).all()
    yield from _accounts(plan, accounts, served)
    yield from judge_transactions(accounts, served)
    if plan.crashes:
        yield from _crash(crash)
    yield said(
        SECTION, "faults the bank made", ", ".join(f"{kind} {n}" for kind, n in truth["faults"].items()) or "none"
    )


def _accounts(plan: Plan, accounts: Any, served: dict[str, Any]) -> Iterator[Line]:
    connected = [account for account in accounts if served[account.external_id]["connected"]]
    ended = [account for account in accounts if not served[account.external_id]["connected"]]
    unsynced = [
        f"account {account.id} {account.status} ({account.outcome})"
        for account in connected
        if account.last_synced_at is None or account.status != AccountStatus.IDLE
    ]
    # A sync's message that came up after its slot's window is dropped, and the next slot takes the account.
    expired = count_events(plan.folder, "message_expired", actor="update_transactions_by_bank_account")
    late = len(unsynced) <= expired
    verdict: Any = "apart" if late else "red"
    synced = len(connected) - len(unsynced)
    yield judged(SECTION, "connected accounts synced", len(connected), synced, unsynced, verdict)
    unnoticed = [f"account {account.id} {account.status}" for account in ended if account.status != "consent_expired"]
    yield judged(SECTION, "ended consents noticed", len(ended), len(ended) - len(unnoticed), unnoticed)


def judge_transactions(accounts: Any, served: dict[str, Any]) -> Iterator[Line]:
    """Lines on what is stored of these accounts, by what the bank says it served."""
    ids = {account.id: account for account in accounts}
    with session() as s:
        rows = s.execute(
            select(Transaction.account_id, Transaction.external_id, func.count())
            .where(Transaction.account_id.in_(ids))
            .group_by(Transaction.account_id, Transaction.external_id)
        ).all()
    stored: dict[int, set[str]] = defaultdict(set)
    doubled = []
    for account_id, external_id, times in rows:
        stored[account_id].add(external_id)
        if times > 1:
            doubled.append(f"{external_id} of account {account_id} {times}×")
    lost: list[str] = []
    invented: list[str] = []
    total = 0
    for account in accounts:
        known = served[account.external_id]["served"]
        ids_served = set(known["booked"]) | set(known["pending"])
        total += len(ids_served)
        if account.last_synced_at is not None:
            lost += [f"{external_id} of account {account.id}" for external_id in ids_served - stored[account.id]]
        invented += [f"{external_id} of account {account.id}" for external_id in stored[account.id] - ids_served]
    kept = sum(len(found) for found in stored.values())
    yield judged(SECTION, "transactions stored, of those the bank served", total, kept, [*lost, *invented])
    yield judged(SECTION, "transactions stored twice", 0, len(doubled), doubled)


def _crash(crash: Crash | None) -> Iterator[Line]:
    if crash is None:
        yield judged(SECTION, "worker killed at its worst moment", "once", "never", ["the moment never came"])
        return
    without = len(crash.held) - crash.with_commits
    held = f"{len(crash.held)} syncs, {crash.with_commits} with committed pages and {without} without"
    wrong = [] if crash.with_commits and without else ["it did not hold one of each"]
    yield judged(SECTION, "worker killed while it held one of each", "both kinds", held, wrong)
    seconds = "never" if crash.restarted_in is None else f"{crash.restarted_in.total_seconds():.1f} s"
    wrong = [f"account {account} never" for account in sorted(crash.waiting)]
    if crash.restarted_in is not None and crash.restarted_in > RESTART_LIMIT:
        wrong = [f"took {seconds}"]
    yield judged(SECTION, "its syncs claimed anew after the kill", f"within {RESTART_LIMIT.seconds} s", seconds, wrong)
