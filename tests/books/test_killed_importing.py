"""A worker that is killed at any place of an import or a batch: it ends, no row is in twice, and one mail tells of it.

How many mails there were is what the mail server wrote down.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, func, select, update

from books import batches, importing, recovery
from books.models import (
    Attachment,
    AttachmentStatus,
    BatchStatus,
    EffectStatus,
    ImportJob,
    ImportStatus,
    OutsideEffect,
    Transaction,
    UploadBatch,
)
from fleet import janitor as passes
from fleet.errors import DeadlineExceeded
from fleet.storage import session
from tests.books import test_batches, test_importing
from tests.books.cut import cut
from tests.books.killed import HALVES, places
from tests.books.taken import about, deliver, run
from tests.books.test_summaries import TO, sent
from tests.books.test_summaries import mails as mails

ROWS = 5

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture(autouse=True)
def small(mails: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three commits a file, and nothing left of another test."""
    monkeypatch.setattr(importing, "ROWS_A_COMMIT", 2)
    rows = "".join(f"0{number}.03.2026;{'x' if number == 2 else number}\n" for number in range(1, ROWS + 1))
    (tmp_path / "five.csv").write_text(f"Datum;Betrag\n{rows}")
    monkeypatch.setattr(Import, "file", tmp_path / "five.csv")
    with session() as s:
        s.execute(delete(Transaction))


class Import:
    """Each flow on a row of its own; `work` is what its messages do, also when they come again."""

    file = Path()
    model: type[Any] = ImportJob
    ended = (ImportStatus.DONE_WITH_ERRORS,)

    def __init__(self) -> None:
        self.row = test_importing.job_for(self.file)
        self._tell()
        self.name = f"import-{self.row}-1"

    def _tell(self) -> None:
        with session() as s:
            s.execute(update(self.model).where(self.model.id == self.row).values(email=TO))

    def work(self) -> None:
        importing.import_csv(self.row, token=f"message of {self.name}")
        self.mail()

    def mail(self) -> None:
        """What waits in Redis for its mails, as often as it is asked for."""
        with session() as s:
            ours = set(s.scalars(select(OutsideEffect.id).where(OutsideEffect.key == self.name)))
        run(list(about("mail_summary", ours)))

    def status(self) -> str:
        with session() as s:
            return str(s.get_one(self.model, self.row).status)

    def right(self) -> bool:
        """Whether each good row is in the books, once."""
        with session() as s:
            days = select(func.extract("day", Transaction.booking_date))
            ours = Transaction.external_id.startswith(f"import:{self.row}:", autoescape=True)
            return sorted(s.scalars(days.where(ours))) == [1, 3, 4, 5]


class TimedOut(Import):
    """Its deadline strikes after the first commit, unless what comes again began behind that."""

    ended = (ImportStatus.FAILED, ImportStatus.DONE_WITH_ERRORS)

    def work(self) -> None:
        token, left = f"message of {self.name}", iter(range(1))

        def check() -> None:
            if next(left, None) is None:
                raise DeadlineExceeded("the soft budget is used up")

        with session() as s:
            over = s.get_one(ImportJob, self.row).finished_at is not None
        if not over:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("books.importing.deadline.check", check)
                cut(timedelta(minutes=1), importing.import_csv, importing.import_lost, self.row, token=token)
        self.mail()

    def right(self) -> bool:
        with session() as s:
            row = s.get_one(ImportJob, self.row)
        if row.status != ImportStatus.FAILED:  # a janitor had it go on
            return super().right()
        stored = test_importing.stored(self.row)
        said = f"timed out after {row.rows_done + row.rows_failed} of {ROWS}: split the file and try again"
        return stored == row.rows_done and row.outcome == said


class Batch(Import):
    """Two files that cannot be opened, and end without a model."""

    model: type[Any] = UploadBatch
    ended = (BatchStatus.DONE_WITH_ERRORS,)

    def __init__(self) -> None:
        self.row, self.files = test_batches.batch("queued", "queued")
        self._tell()
        self.name = f"batch-{self.row}-1"

    def work(self) -> None:
        batches.extract_batch(self.row, token=f"message of {self.name}")
        run(list(about("extract_data_from_attachment", set(self.files))))
        self.mail()

    def right(self) -> bool:
        with session() as s:
            files = s.scalars(select(Attachment.status).where(Attachment.id.in_(self.files))).all()
        counted = test_batches.now(self.row)
        return set(files) == {AttachmentStatus.UNREADABLE} and (counted.files_done, counted.files_total) == (2, 2)


def one_pass() -> None:
    """The janitors', once the leases of the dead have lapsed and what waits has waited for long; and what they sent."""
    long_ago = func.now() - timedelta(hours=1)
    models: tuple[Any, ...] = (ImportJob, UploadBatch, Attachment, OutsideEffect)
    with session() as s:
        for model in models:
            s.execute(update(model).where(model.lease_until.is_not(None)).values(lease_until=long_ago))
            s.execute(update(model).where(model.finished_at.is_not(None)).values(finished_at=long_ago))
        for model in models[:3]:
            s.execute(update(model).values(queued_at=long_ago))
    passes.run("finish_stuck_imports", recovery.stuck_imports())
    passes.run("requeue_stuck_runs", recovery.stuck_runs())
    deliver()


def judge(log: Path, flows: list[Import]) -> int:
    """Assert that each has ended right and was told of once; returns how many mails are in doubt, which were not."""
    mails = sent(log)
    with session() as s:
        effects = {effect.key: effect.status for effect in s.scalars(select(OutsideEffect))}
    assert {flow.name: status for flow in flows if (status := flow.status()) not in flow.ended} == {}
    assert [flow.name for flow in flows if not flow.right()] == []
    assert set(effects) == {flow.name for flow in flows}
    assert set(effects.values()) <= {EffectStatus.DONE, EffectStatus.NEEDS_REVIEW}
    told = {name: mails[name] for name, status in effects.items() if status == EffectStatus.DONE}
    assert told == dict.fromkeys(told, 1)
    in_doubt = {name: mails[name] for name in effects if name not in told}
    assert {name: times for name, times in in_doubt.items() if times > 1} == {}
    assert mails.total() == sum(told.values()) + sum(in_doubt.values())
    return len(in_doubt)


@HALVES
@pytest.mark.timeout(300)
@pytest.mark.parametrize("then", ["its messages come again", "a janitor passes"])
@pytest.mark.parametrize(("flow", "fewest"), [(Import, 70), (TimedOut, 60), (Batch, 90)])
def test_killed_at_any_place_an_import_ends_with_every_row_once_and_one_mail(
    mails: Path, flow: type[Import], fewest: int, then: str, step: int
) -> None:
    flow().work()  # what is imported here need not be by every process that is killed
    with session() as s:
        s.execute(delete(OutsideEffect))
    mails.write_text("")
    killed: list[Import] = []

    def work(_: int) -> Callable[[], object]:
        killed.append(flow())
        return killed[-1].work

    assert places(work, 1 + (then == "a janitor passes" and step > 1), step) >= fewest
    if then == "its messages come again":
        deliver()
        for one in killed:
            one.work()
        deliver()
    else:
        one_pass()
    # In doubt are only those whose mail's content was about to go, until its row says that it did.
    assert judge(mails, killed) <= 16 // step
