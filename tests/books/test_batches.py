"""A batch goes out once, counts its files as they end, and ends with the last of them, whoever ends that."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from dramatiq import Message
from sqlalchemy import delete, func, select, update

from books import attachments, batches, recovery
from books.models import Attachment, AttachmentStatus, BatchStatus, UploadBatch
from fleet import app as application
from fleet import janitor
from fleet.errors import DeadlineExceeded
from fleet.storage import session
from tests.books.cut import cut
from tests.books.taken import waiting
from tests.conftest import ROOT

READ = "extract_data_from_attachment"


@pytest.fixture(autouse=True)
def books(migrated: object) -> None:
    application.load(ROOT)
    with session() as s:
        s.execute(delete(Attachment))
        s.execute(delete(UploadBatch))


def batch(*statuses: str, status: str = BatchStatus.QUEUED, path: str = "/nowhere/a.png") -> tuple[int, list[int]]:
    """A batch and its files; a file that cannot be opened ends without a model."""
    with session() as s:
        row = UploadBatch(customer="c", status=status)
        s.add(row)
        s.flush()
        files = [Attachment(customer="c", path=path, batch_id=row.id, status=status) for status in statuses]
        s.add_all(files)
        s.flush()
        return row.id, [file.id for file in files]


def now(batch_id: int) -> UploadBatch:
    with session() as s:
        return s.get_one(UploadBatch, batch_id)


def told(batch_id: int) -> tuple[str, str | None, int, int | None]:
    row = now(batch_id)
    return row.status, row.outcome, row.files_done, row.files_total


def end(file: int, status: str) -> None:
    """What reading a file to its end does to its row."""
    hold = attachments.take(
        Attachment, file, message="m", claimable=(AttachmentStatus.QUEUED,), then=batches.file_moved
    )
    assert hold is not None
    hold.finish(status, "it ended")


def test_its_waiting_files_go_out_and_each_that_ends_counts_until_the_last_ends_it() -> None:
    one, (_, first, second) = batch("read", "queued", "queued")
    batches.extract_batch(one, token="m1")
    assert [message.args[0] for message in waiting(READ)] == [first, second]
    assert told(one) == ("reading", None, 1, 3)
    assert now(one).finished_at is None
    end(first, AttachmentStatus.READ)
    assert told(one) == ("reading", None, 2, 3)
    end(second, AttachmentStatus.READ)
    assert told(one) == ("done", "3 of 3 files read", 3, 3)
    assert now(one).finished_at is not None


def test_a_file_that_is_handed_back_ends_nothing_and_one_that_was_not_read_ends_it_with_errors() -> None:
    one, (file,) = batch("queued")
    batches.extract_batch(one, token="m1")
    end(file, AttachmentStatus.QUEUED)
    assert told(one) == ("reading", None, 0, 1)
    end(file, AttachmentStatus.UNREADABLE)
    assert told(one) == ("done_with_errors", "0 of 1 files read", 1, 1)


def test_a_message_that_comes_twice_sends_no_file_twice() -> None:
    one, files = batch("queued", "queued")
    batches.extract_batch(one, token="m1")
    batches.extract_batch(one, token="m1")
    assert [message.args[0] for message in waiting(READ)] == files


def test_a_batch_without_a_file_that_waits_ends_at_once() -> None:
    one, _ = batch("read", "failed")
    batches.extract_batch(one, token="m1")
    assert told(one) == ("done_with_errors", "1 of 2 files read", 2, 2)


def test_the_files_of_a_large_upload_are_left_to_the_night_and_the_last_of_them_ends_it() -> None:
    one, files = batch("read", *["queued"] * batches.FILES_A_BATCH)
    batches.extract_batch(one, token="m1")
    assert told(one) == ("reading", "96 files are read by night", 1, 96)
    assert (waiting(READ), attachments.backlog()) == ([], 95)
    while attachments.extract_backlog(40, token="a chunk"):
        assert told(one)[0] == "reading"
    assert told(one) == ("done_with_errors", "1 of 96 files read", 96, 96)
    assert len(files) == 96


def test_a_deadline_while_it_is_sent_out_says_how_far_it_is_and_has_sent_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, _ = batch("read", "queued", "queued")
    left = iter(range(1))

    def check() -> None:
        if next(left, None) is None:
            raise DeadlineExceeded("the soft budget is used up")

    with monkeypatch.context() as patch:
        patch.setattr("books.batches.deadline.check", check)
        cut(timedelta(minutes=1), batches.extract_batch, batches.batch_lost, one, token="m1")
    assert told(one) == ("failed", "timed out after 1 of 3: split the upload and try again", 1, 3)
    assert waiting(READ) == []


def test_two_files_that_end_at_once_end_the_batch_once() -> None:
    from threading import Barrier, Thread

    one, files = batch(*["queued"] * 8)
    batches.extract_batch(one, token="m1")
    together = Barrier(len(files))

    def work(file: int) -> None:
        together.wait()
        end(file, AttachmentStatus.READ)

    threads = [Thread(target=work, args=(file,)) for file in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told(one) == ("done", "8 of 8 files read", 8, 8)


def test_a_file_that_is_cut_off_or_given_up_ends_its_batch_too() -> None:
    one, (file,) = batch("running", status="reading")
    with session() as s:
        s.execute(update(Attachment).where(Attachment.id == file).values(lease_message="m1"))
    attachments.attachment_lost(Message("q", "a", (file,), {}, {}, message_id="m1"), "timed out")
    assert told(one) == ("done_with_errors", "0 of 1 files read", 1, 1)
    other, (worn,) = batch("running", status="reading")
    lapsed = {"attempts": 5, "lease_until": func.now() - timedelta(minutes=1)}
    with session() as s:
        s.execute(update(Attachment).where(Attachment.id == worn).values(lapsed))
    janitor.run("requeue_stuck_runs", recovery.stuck_runs())
    assert told(other) == ("done_with_errors", "0 of 1 files read", 1, 1)


def stuck(**values: Any) -> None:
    with session() as s:
        s.execute(update(UploadBatch).values(**values))


def test_a_janitor_sends_out_what_was_lost_ends_what_kills_its_workers_and_leaves_what_is_live() -> None:
    one, _ = batch("queued", status="running")
    stuck(lease_until=func.now() - timedelta(minutes=1), attempts=1, queued_at=func.now() - timedelta(hours=1))
    live, _ = batch("queued", "read", status="reading")
    assert janitor.run("finish_stuck_imports", recovery.stuck_imports()).recovered == 1
    assert (now(one).status, now(live).status) == ("queued", "reading")
    assert [message.args[0] for message in waiting("extract_batch")] == [one]
    stuck(status="running", lease_until=func.now() - timedelta(minutes=1), attempts=5)
    assert janitor.run("finish_stuck_imports", recovery.stuck_imports()).recovered == 2
    assert now(one).status == "failed"
    assert "attempt 5" in (now(one).outcome or "")


def test_a_janitor_ends_a_batch_whose_files_ended_where_nobody_counted() -> None:
    one, _ = batch("read", "failed", status="reading")
    assert janitor.run("finish_stuck_imports", recovery.stuck_imports()).recovered == 1
    assert told(one) == ("done_with_errors", "1 of 2 files read", 2, 2)


@pytest.mark.parametrize(("status", "sent"), [("queued", 0), ("failed", 0), ("reading", 1)])
def test_files_of_a_batch_that_is_not_out_wait_for_it_and_are_not_sent_by_a_janitor(status: str, sent: int) -> None:
    _, (file,) = batch("queued", status=status)
    with session() as s:
        s.execute(update(Attachment).values(queued_at=func.now() - timedelta(hours=1)))
    janitor.run("requeue_stuck_runs", recovery.stuck_runs())
    assert [message.args[0] for message in waiting(READ)] == [file] * sent


def test_a_bomb_of_a_picture_among_the_files_ends_readable_and_the_batch_with_errors(tmp_path: Path) -> None:
    from tests.books.test_documents import huge_png

    one, (bomb,) = batch("queued", path=str(huge_png(tmp_path / "bomb.png", 50_000)))
    batches.extract_batch(one, token="m1")
    attachments.extract(bomb, token="m2")
    with session() as s:
        status, outcome = s.execute(select(Attachment.status, Attachment.outcome)).one()
    assert status == AttachmentStatus.UNREADABLE
    assert outcome.startswith("bomb.png: Image size (2500000000 pixels) exceeds limit")
    assert told(one)[:2] == ("done_with_errors", "0 of 1 files read")
