"""What the janitors do: rows whose worker is gone are freed and sent again, or ended when that never helps.

A row is taken only when its lease has lapsed by the database's clock, in one conditional UPDATE, and a lease outlasts
the hard budget of the job that holds it: live work is never touched. A row that waits for a message longer than
`WAITS_AT_MOST` is sent again; if its message was only slow there are two, and the claim lets one work.

Not guaranteed: that what was freed was also sent. A send that fails leaves the row waiting, and a later pass sends it.
Each pass ends with one line: processed, recovered, failed, and the age of the oldest row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dramatiq import DramatiqError
from redis import RedisError
from sqlalchemy import ColumnElement, func, literal, select, update
from sqlalchemy.orm import Session

from books import outside
from books.models import (
    AccountStatus,
    AgentRun,
    Attachment,
    AttachmentStatus,
    BankAccount,
    ImportJob,
    ImportStatus,
    RunKind,
    RunStatus,
)
from fleet.actor import current_message_id
from fleet.app import process_broker
from fleet.logs import get_logger
from fleet.storage import session
from fleet.storage.leases import RUNNING

log = get_logger(__name__)

WAITS_AT_MOST = timedelta(minutes=30)  # real time; longer than any lane's queue on a good night
MOST_ATTEMPTS = 5  # a row whose worker died five times is the reason
ROWS_A_PASS = 500


@dataclass(frozen=True)
class Waiting:
    """Rows that wait for a message of an actor: of which model, in which status, which of them."""

    actor: str | None
    model: type[Attachment | AgentRun | ImportJob]
    queued: str
    failed: str
    only: ColumnElement[bool]


# An eval run waits for the next evals, not for a message: it is freed, never sent.
WAITING: Sequence[Waiting] = (
    Waiting("prepare_run", AgentRun, RunStatus.QUEUED, RunStatus.FAILED, AgentRun.kind == RunKind.PREPARE),
    Waiting("submit_approved_run", AgentRun, RunStatus.APPROVED, RunStatus.FAILED, AgentRun.kind == RunKind.SUBMIT),
    Waiting(None, AgentRun, RunStatus.QUEUED, RunStatus.FAILED, AgentRun.kind == RunKind.EVAL),
    Waiting(
        "extract_data_from_attachment", Attachment, AttachmentStatus.QUEUED, AttachmentStatus.FAILED, literal(True)
    ),
    Waiting("import_csv", ImportJob, ImportStatus.QUEUED, ImportStatus.FAILED, literal(True)),
)


class Pass:
    """Counts what one pass of a janitor did."""

    def __init__(self) -> None:
        self.recovered = self.failed = 0
        self.oldest = timedelta(0)

    def send(self, actor: str | None, rows: Iterable[tuple[int, timedelta | None]]) -> None:
        """Send each row's message again, without the janitor's own expiry; one that cannot be sent is counted."""
        for row_id, age in rows:
            self.oldest = max(self.oldest, age or timedelta(0))
            try:
                if actor is not None:
                    process_broker().get_actor(actor).send_with_options(args=(row_id,), expires_at=None)
                self.recovered += 1
            except (RedisError, DramatiqError) as error:
                self.failed += 1
                log.debug("not_sent", actor=actor, row=row_id, error=repr(error))

    def gave_up(self, rows: Sequence[tuple[int, timedelta | None]]) -> None:
        self.failed += len(rows)
        self.oldest = max([self.oldest, *(age for _, age in rows if age is not None)])

    def add(self, resolved: outside.Resolved) -> None:
        self.recovered += resolved.settled
        self.failed += resolved.parked + resolved.failed
        self.oldest = max(self.oldest, resolved.oldest)

    def say(self, janitor: str) -> None:
        processed = self.recovered + self.failed
        tell = log.warning if self.failed else log.info
        tell(janitor, processed=processed, recovered=self.recovered, failed=self.failed, oldest=_short(self.oldest))


def recover_stuck_syncs() -> None:
    """Free the accounts whose sync was lost and send their sync again."""
    lapsed = (BankAccount.status == RUNNING) & (BankAccount.lease_until < func.now())
    said = func.concat("its worker was lost after page ", BankAccount.pages_done, "; sent again")
    done = Pass()
    try:
        with session() as s:
            values = {"status": AccountStatus.IDLE, "outcome": said, "lease_until": None, "covers_until": None}
            freed = _move(s, BankAccount, lapsed, values)
        done.send("update_transactions_by_bank_account", freed)
    finally:
        done.say("recover_stuck_syncs")


def requeue_stuck_runs() -> None:
    """Queue agent runs, attachments and imports again whose worker or whose message was lost; find out what became of
    what was leaving the house."""
    done = Pass()
    try:
        for waiting in WAITING:
            with session() as s:
                gone = _give_up(s, waiting)
                freed = _free(s, waiting)
                forgotten = _forgotten(s, waiting)
            done.gave_up(gone)
            done.send(waiting.actor, [*freed, *forgotten])
        done.add(outside.resolve(token=current_message_id()))
    finally:
        done.say("requeue_stuck_runs")


def _lapsed(waiting: Waiting) -> ColumnElement[bool]:
    return waiting.only & (waiting.model.status == RUNNING) & (waiting.model.lease_until < func.now())


def _give_up(s: Session, waiting: Waiting) -> list[tuple[int, timedelta | None]]:
    said = func.concat("given up: its worker was lost, for the last time in attempt ", waiting.model.attempts)
    values = {"status": waiting.failed, "outcome": said, "finished_at": func.now(), "lease_until": None}
    return _move(s, waiting.model, _lapsed(waiting) & (waiting.model.attempts >= MOST_ATTEMPTS), values)


def _free(s: Session, waiting: Waiting) -> list[tuple[int, timedelta | None]]:
    said = func.concat("its worker was lost in attempt ", waiting.model.attempts, "; queued again")
    values = {"status": waiting.queued, "outcome": said, "queued_at": func.now(), "lease_until": None}
    return _move(s, waiting.model, _lapsed(waiting), values)


def _forgotten(s: Session, waiting: Waiting) -> list[tuple[int, timedelta | None]]:
    """Rows that wait too long, counted from when they were queued or handed back."""
    if waiting.actor is None:
        return []
    model = waiting.model
    since = func.greatest(model.queued_at, model.finished_at)
    too_long = waiting.only & (model.status == waiting.queued) & (since < func.now() - WAITS_AT_MOST)
    return _move(s, model, too_long, {"queued_at": func.now()}, age_from=model.queued_at)


def _move(
    s: Session, model: type[Any], which: ColumnElement[bool], values: dict[str, Any], age_from: Any = None
) -> list[tuple[int, timedelta | None]]:
    """Change up to `ROWS_A_PASS` rows that nobody else is changing now; returns each id and age."""
    age = func.now() - (model.started_at if age_from is None else age_from)
    chosen = s.execute(select(model.id, age).where(which).limit(ROWS_A_PASS).with_for_update(skip_locked=True)).all()
    ids = [row_id for row_id, _ in chosen]
    if ids:
        s.execute(
            update(model).where(model.id.in_(ids)).values(**values), execution_options={"synchronize_session": False}
        )
    return [(row_id, age) for row_id, age in chosen]


def _short(age: timedelta) -> str:
    minutes = int(age.total_seconds() // 60)
    return (
        f"{minutes // 60}h{minutes % 60:02d}m" if minutes >= 60 else f"{minutes}m{int(age.total_seconds()) % 60:02d}s"
    )
