"""What nights are compared by: how long people waited, how long the sync took, what was left at the deadline.

All spans are night time. A person's wait is from when they sent, or would have, had a server that stands still not held
them up, to the moment the model, by its own journal, began to answer the first question of their run; a refusal is no
answer. Queue, worker, database and the provider's own queue are included. An upload's is from sending to the moment its
row was claimed, by the row; a row that was claimed again says only its last, and is left out. In a night that is too
fast for its machine they wait behind the evening's batch, which is people's as well. The sync's makespan is that of its
last account, which the bank's weather may have sent to a retry or two; so its p95 stands by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from books.calendar import BERLIN
from books.models import Attachment, BankAccount
from books.night.judge_elastic import ElasticWatch
from books.night.logs import lines
from books.night.plan import EVENING, at
from books.night.report import Waited
from books.seeding import Expected
from fleet.app import App, settings
from fleet.clock import clock
from fleet.storage import session
from fleet.storage.slots import recorded_as
from fleet.storage.tables import Slot, SlotState


def of(
    app: App, waits: Sequence[Waited], expected: Expected, sent: Mapping[tuple[str, Any], datetime], watch: ElasticWatch
) -> dict[str, float]:
    """The figures of a night that is over."""
    people = sorted(one.seconds for one in waits)
    with session() as s:
        entries = [recorded_as(settings().namespace, entry.name) for entry in app.schedule]
        accounts = select(BankAccount.last_synced_at).where(BankAccount.id.in_(expected.accounts))
        synced = sorted((ended - at(1, 0)).total_seconds() for ended in s.scalars(accounts) if ended is not None)
        expired = s.scalar(
            select(func.count())
            .select_from(Slot)
            .where(Slot.state == SlotState.EXPIRED, Slot.slot > EVENING, Slot.entry.in_(entries))
        )
    uploads = sorted(_uploads_waited(sent))
    found = {
        "people": float(len(people)),
        "people_wait_median": quantile(people, 0.5),
        "people_wait_p95": quantile(people, 0.95),
        "people_wait_p99": quantile(people, 0.99),
        "sync_makespan": synced[-1] if synced else 0.0,
        "sync_p95": quantile(synced, 0.95),
        "expired": float(expired or 0),
        "upload_start_p95": quantile(uploads, 0.95),
    }
    return found | {f"left_at_deadline.{name}": float(left) for name, left in watch.at_deadline.items()}


def people_waited(model_log: Path, sent: Mapping[tuple[str, Any], datetime]) -> list[Waited]:
    """Each person whose run the model was asked about, who waited longest first."""
    waited: dict[str, Waited] = {}
    asked_at = {f"agent_run:{row}": when for (actor, row), when in sent.items() if actor == "submit_approved_run"}
    for call in lines(model_log):
        run = call["run"]
        if run in asked_at and run not in waited and call["status"] == 200:  # a refusal is no answer
            night = timedelta(seconds=call["real"] - asked_at[run].timestamp()) * clock.rate
            seconds = max(0.0, night.total_seconds() - call["latency"])
            waited[run] = Waited(run, f"{clock.to_night(asked_at[run]).astimezone(BERLIN):%H:%M:%S}", round(seconds, 2))
    return sorted(waited.values(), key=lambda one: -one.seconds)


def sent_by(people: Path) -> dict[tuple[str, Any], datetime]:
    """What a desk's journal says was sent: actor and first argument to the real instant."""
    return {(line["actor"], line["about"]): datetime.fromtimestamp(line["real"], UTC) for line in lines(people)}


def _uploads_waited(sent: Mapping[tuple[str, Any], datetime]) -> list[float]:
    """Night seconds, an upload each."""
    sent_at = {row: when for (actor, row), when in sent.items() if actor == "extract_data_from_attachment"}
    once = select(Attachment.id, Attachment.started_at).where(Attachment.id.in_(sent_at), Attachment.attempts == 1)
    with session() as s:
        started = s.execute(once).all()
    return [((began - sent_at[row]) * clock.rate).total_seconds() for row, began in started if began is not None]


def quantile(values: list[float], share: float) -> float:
    """Of sorted values the one that this share is not above; 0 of none."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0
