"""Judges what left the house by what the other side wrote down: each thing filed or charged once, and nothing else.

Whatever was killed, and however the gateway answered: its own log is the truth. What nobody could tell stands in the
rows as `needs_review`; it is told, and is red only where it was done twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sqlalchemy import select

from books.models import AgentRun, EffectStatus, OutsideEffect, RunStatus, Subscription, SubscriptionStatus
from books.night.logs import lines
from books.night.report import Line, judged, said
from books.night.world import World
from books.seeding import Expected
from fleet.storage import session

SECTION = "outside"


def judge(world: World, expected: Expected, cut: tuple[int, int] | None) -> Iterator[Line]:
    """Lines on filings and charges; `cut` is the child that the night killed while it charged, and how many charges."""
    log = list(lines(world.gateway_log))
    taken = Counter(line["reference"] for line in log if line["taken"])
    doubled = [f"{reference} {times}×" for reference, times in taken.items() if times > 1]
    yield judged(SECTION, "filings or charges made twice", 0, len(doubled), doubled)
    yield from _filings(taken, expected)
    yield from _charges(taken, expected)
    yield said(
        SECTION, "charges on their way when their worker was killed", cut[1] if cut else "none: it was too quick"
    )
    asked = sum(line["act"] == "ask" for line in log)
    faults = Counter(line["fault"] for line in log if line["fault"])
    told = ", ".join(f"{fault} {times}" for fault, times in faults.most_common()) or "none"
    yield said(SECTION, "faults the gateway made, and how often it was asked", f"{told}; asked {asked}")
    with session() as s:
        statuses = Counter(s.scalars(select(OutsideEffect.status)))
    unended = statuses[EffectStatus.RUNNING] + statuses[EffectStatus.WAITING]
    which = [f"{unended} of {statuses.total()}"] if unended else []
    yield judged(SECTION, "things on their way out at the end", 0, unended, which)
    yield said(SECTION, "things that need a person", statuses[EffectStatus.NEEDS_REVIEW])


def _filings(taken: Counter[str], expected: Expected) -> Iterator[Line]:
    with session() as s:
        runs = s.scalars(select(AgentRun).where(AgentRun.id.in_(expected.submit_runs))).all()
    wrong = [
        f"run {run.id} {run.status}, filed {taken[f'run {run.id}']}×" for run in runs if not _filed_once(run, taken)
    ]
    total = len(expected.submit_runs)
    yield judged(SECTION, "approved runs filed once, by the authority's log", total, total - len(wrong), wrong)


def _filed_once(run: AgentRun, taken: Counter[str]) -> bool:
    known = run.status == RunStatus.SUBMITTED and taken[f"run {run.id}"] == 1
    return known or (run.status == RunStatus.NEEDS_REVIEW and taken[f"run {run.id}"] <= 1)


def _charges(taken: Counter[str], expected: Expected) -> Iterator[Line]:
    charged = Counter(int(reference.split()[1]) for reference in taken if reference.startswith("subscription "))
    with session() as s:
        rows = {row.id: row for row in s.scalars(select(Subscription))}
    wrong = [
        f"subscription {row} {rows[row].status}, {charged[row]} periods ({rows[row].outcome})"
        for row in expected.paying_subscriptions
        if (rows[row].status, charged[row]) != (SubscriptionStatus.ACTIVE, 1)
        and rows[row].status != SubscriptionStatus.NEEDS_REVIEW
    ]
    total = len(expected.paying_subscriptions)
    claim = "subscriptions charged for one period, by the gateway's log"
    yield judged(SECTION, claim, total, total - len(wrong), wrong)
    silent = [
        f"subscription {row} {rows[row].status} ({rows[row].outcome})"
        for row in expected.declined_subscriptions
        if rows[row].status != SubscriptionStatus.DECLINED or charged[row]
    ]
    total = len(expected.declined_subscriptions)
    yield judged(SECTION, "refused cards that say so", total, total - len(silent), silent)
    others = [f"subscription {row}" for row in expected.other_subscriptions if charged[row]]
    yield judged(SECTION, "charges of what was not due", 0, len(others), others)
