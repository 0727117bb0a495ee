"""What the books' janitors look after: rows whose worker or whose message is gone (`fleet.storage.stuck_rows`).

A row whose lease has lapsed waits again where its message takes it, and its message is sent; one that waits for a
message longer than `WAITS_AT_MOST` is sent again: if its message was only slow there are two, and the claim lets one
work. A row whose worker died five times is the reason, and is ended. So is one that says running without a lease, from
before there were any: whoever held it is gone, and nobody knows how far it came.

A lease outlasts the hard budget of the job that holds it, and long jobs renew theirs: live work is never touched.

Not guaranteed: that a message which was sent again is the only one. An eval, and a document of the backlog, has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, func, literal, or_, select

from books import batches, outside
from books.leasing import Then
from books.models import (
    AccountStatus,
    AgentRun,
    Attachment,
    AttachmentStatus,
    BankAccount,
    BatchStatus,
    ImportJob,
    ImportStatus,
    RunKind,
    RunStatus,
    UploadBatch,
)
from books.summaries import import_moved
from fleet.actor import current_message_id
from fleet.janitor import Chore
from fleet.storage.leases import RUNNING
from fleet.storage.stuck_rows import Move, StuckRows, lapsed, without_lease

WAITS_AT_MOST = timedelta(minutes=30)  # real time; longer than any lane's queue on a good night
MOST_ATTEMPTS = 5  # a row whose worker died five times is the reason
_WITHOUT_LEASE = "said running without a lease, from before there were any; "


@dataclass(frozen=True)
class Waiting:
    """Rows that wait for a message of an actor, if for any: of which model, in which status, which of them."""

    actor: str | None
    model: type[Attachment | AgentRun | ImportJob | UploadBatch]
    queued: str
    failed: str
    only: ColumnElement[bool]
    again: str  # what a person does about one that was ended
    then: Then | None = None

    def rows(self) -> StuckRows:
        """These as a janitor's chore."""
        seen = and_(self.only, self.model.status.in_((RUNNING, self.queued)))
        return StuckRows(self.model, [*self._lost(), *self._forgotten()], seen=seen)

    def _lost(self) -> Sequence[Move]:
        model, worn_out = self.model, self.model.attempts >= MOST_ATTEMPTS
        gave_up = func.concat("given up: its worker was lost, for the last time in attempt ", model.attempts)
        again = func.concat("its worker was lost in attempt ", model.attempts, "; queued again")
        lost, started = and_(self.only, lapsed(model)), model.started_at
        unknown = and_(self.only, without_lease(model))
        waits = {"status": self.queued, "outcome": again, "queued_at": func.now(), "lease_until": None}
        return (
            Move(
                "given up: its worker was lost too often",
                and_(lost, worn_out),
                started,
                self._ends(gave_up),
                then=self.then,
            ),
            Move("queued again: its worker is lost", and_(lost, ~worn_out), started, waits, send=self.actor),
            Move(
                "ended: it has no lease",
                unknown,
                func.coalesce(started, model.queued_at),
                self._ends(_WITHOUT_LEASE + self.again),
                then=self.then,
            ),
        )

    def _ends(self, outcome: Any) -> dict[str, Any]:
        return {"status": self.failed, "outcome": outcome, "finished_at": func.now(), "lease_until": None}

    def _forgotten(self) -> Sequence[Move]:
        """Those that wait too long, counted from when they were queued or handed back."""
        if self.actor is None:
            return ()
        model = self.model
        since = func.greatest(model.queued_at, model.finished_at)
        too_long = and_(self.only, model.status == self.queued, since < func.now() - WAITS_AT_MOST)
        return (Move("sent again: its message is lost", too_long, since, {"queued_at": func.now()}, send=self.actor),)


_RUN_AGAIN = "start it again"
_FILE_AGAIN = "upload it again"

_NOT_OUT = (BatchStatus.QUEUED, BatchStatus.RUNNING, BatchStatus.FAILED)
_SENT_OUT = or_(
    Attachment.status == RUNNING,
    Attachment.batch_id.is_(None),
    exists().where(UploadBatch.id == Attachment.batch_id, UploadBatch.status.not_in(_NOT_OUT)),
)
"""Files that have, or had, a message: those of a batch that waits or that failed have none yet, the backlog's never."""

RUNS: Sequence[Waiting] = (
    Waiting("prepare_run", AgentRun, RunStatus.QUEUED, RunStatus.FAILED, AgentRun.kind == RunKind.PREPARE, _RUN_AGAIN),
    Waiting(
        "submit_approved_run",
        AgentRun,
        RunStatus.APPROVED,
        RunStatus.FAILED,
        AgentRun.kind == RunKind.SUBMIT,
        "it was not handed in: approve it again",
    ),
    Waiting(None, AgentRun, RunStatus.QUEUED, RunStatus.FAILED, AgentRun.kind == RunKind.EVAL, _RUN_AGAIN),
    Waiting(
        "extract_data_from_attachment",
        Attachment,
        AttachmentStatus.QUEUED,
        AttachmentStatus.FAILED,
        and_(~Attachment.backlog, _SENT_OUT),
        _FILE_AGAIN,
        batches.file_moved,
    ),
    Waiting(
        None,
        Attachment,
        AttachmentStatus.QUEUED,
        AttachmentStatus.FAILED,
        Attachment.backlog.is_(True),
        _FILE_AGAIN,
        batches.file_moved,
    ),
)
IMPORTS: Sequence[Waiting] = (
    Waiting(
        "import_csv", ImportJob, ImportStatus.QUEUED, ImportStatus.FAILED, literal(True), _FILE_AGAIN, import_moved
    ),
    Waiting(
        "extract_batch",
        UploadBatch,
        BatchStatus.QUEUED,
        BatchStatus.FAILED,
        literal(True),
        _FILE_AGAIN,
        batches.batch_moved,
    ),
)


def stuck_syncs() -> list[StuckRows]:
    """Accounts whose sync was lost: freed, and their sync sent again."""
    lost, started = lapsed(BankAccount), BankAccount.started_at
    said = func.concat("its worker was lost after page ", BankAccount.pages_done, "; sent again")
    freed = {"status": AccountStatus.IDLE, "outcome": said, "lease_until": None, "covers_until": None}
    failed = {
        "status": AccountStatus.FAILED,
        "outcome": _WITHOUT_LEASE + "the next slot syncs it",
        "finished_at": func.now(),
        "covers_until": None,
    }
    moves = (
        Move("synced again: its worker is lost", lost, started, freed, send="update_transactions_by_bank_account"),
        Move("ended: it has no lease", without_lease(BankAccount), started, failed),
    )
    return [StuckRows(BankAccount, moves, seen=BankAccount.status == RUNNING)]


def stuck_runs() -> list[Chore]:
    """Agent runs and documents: queued again, or given up; and what was leaving the house: found out about."""
    return [*(waiting.rows() for waiting in RUNS), outside.Unresolved(token=current_message_id())]


def stuck_imports() -> list[StuckRows]:
    """Imports: continued behind the rows that are in the books, or given up. Batches: sent out again, or ended."""
    return [*(waiting.rows() for waiting in IMPORTS), _read_batches()]


def _read_batches() -> StuckRows:
    """Batches that are being read though no file of theirs is open: it ended where nobody counted batches yet."""
    reading = UploadBatch.status == BatchStatus.READING
    open_file = exists().where(Attachment.batch_id == UploadBatch.id, Attachment.status.in_(batches.OPEN))
    last = select(func.max(Attachment.finished_at)).where(Attachment.batch_id == UploadBatch.id).scalar_subquery()
    counted = {"files_total": UploadBatch.files_total}  # `then` counts, and ends it
    plan = "ended: its files have all ended"
    move = Move(plan, and_(reading, ~open_file), last, counted, then=batches.batch_moved)
    return StuckRows(UploadBatch, [move], seen=reading)
