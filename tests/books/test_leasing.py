"""A row belongs to one message at a time, and says how the work on it ended."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from dramatiq import Message, MessageProxy
from dramatiq.middleware import CurrentMessage, Shutdown
from sqlalchemy import func, update

from books.leasing import LeaseLost, is_last_attempt, lost, take
from books.models import Attachment, AttachmentStatus
from fleet import app as application
from fleet import unspent, wire
from fleet.app import process_broker
from fleet.errors import DeadlineExceeded
from fleet.storage import session
from tests.conftest import ROOT
from tests.middleware.slot_rows import refused_port
from tests.middleware.test_postgres_gone import raised

CLAIMABLE = (AttachmentStatus.QUEUED,)


@pytest.fixture
def row(migrated: object) -> int:
    with session() as s:
        attachment = Attachment(customer="c", path="a.png", status=AttachmentStatus.QUEUED)
        s.add(attachment)
        s.flush()
        return attachment.id


def now(row_id: int) -> Attachment:
    with session() as s:
        return s.get_one(Attachment, row_id)


def lapse(row_id: int) -> None:
    with session() as s:
        past = func.now() - timedelta(seconds=1)
        s.execute(update(Attachment).where(Attachment.id == row_id).values(lease_until=past))


def test_a_second_message_does_not_get_a_row_that_is_held(row: int) -> None:
    assert take(Attachment, row, message="first", claimable=CLAIMABLE)
    assert take(Attachment, row, message="second", claimable=CLAIMABLE) is None


def test_the_same_message_takes_its_row_over_at_once_and_what_held_it_before_writes_no_more(row: int) -> None:
    zombie = take(Attachment, row, message="first", claimable=CLAIMABLE)
    again = take(Attachment, row, message="first", claimable=CLAIMABLE)
    assert zombie is not None and again is not None
    assert again.row.attempts == 2
    with pytest.raises(LeaseLost, match="of message first; what it did after that was not written"):
        zombie.finish(AttachmentStatus.READ, "late")
    again.finish(AttachmentStatus.READ, "read")
    assert now(row).outcome == "read"


def test_after_the_lease_lapsed_the_first_message_can_write_no_more(row: int) -> None:
    first = take(Attachment, row, message="first", claimable=CLAIMABLE)
    lapse(row)
    second = take(Attachment, row, message="second", claimable=CLAIMABLE)
    assert first
    assert second
    with pytest.raises(LeaseLost):
        first.finish(AttachmentStatus.READ, "late")
    with pytest.raises(LeaseLost), session() as s:
        first.renew(s)
    second.finish(AttachmentStatus.READ, "read")
    assert now(row).outcome == "read"


def message(row_id: int, id: str, **kwargs: int) -> Message[None]:
    return Message("queue", "actor", () if kwargs else (row_id,), kwargs, {}, message_id=id)


def test_a_deadline_goes_on_up_and_leaves_the_row_to_the_hand_that_ends_it(row: int) -> None:
    hold = take(Attachment, row, message="first", claimable=CLAIMABLE)
    assert hold
    with pytest.raises(DeadlineExceeded), hold.to_the_end(back_to="queued", failed="failed"):
        raise DeadlineExceeded("timed out after 1 of 2 pages")
    assert now(row).status == "running"
    lost(Attachment, message(row, "first"), "timed out after 1 of 2 pages", failed="failed")
    assert (now(row).status, now(row).outcome) == ("failed", "timed out after 1 of 2 pages")


def test_the_row_of_a_lost_job_is_ended_by_a_name_too(row: int) -> None:
    assert take(Attachment, row, message="first", claimable=CLAIMABLE)
    lost(Attachment, message(row, "first", attachment_id=row), "hard budget", failed="failed")
    assert (now(row).status, now(row).outcome) == ("failed", "hard budget")


def test_a_row_that_ended_or_is_another_messages_is_left_as_it_is(row: int) -> None:
    hold = take(Attachment, row, message="first", claimable=CLAIMABLE)
    assert hold
    lost(Attachment, message(row, "second"), "hard budget", failed="failed")
    assert now(row).status == "running"
    hold.finish("read", "read")
    lost(Attachment, message(row, "first"), "hard budget", failed="failed")
    assert (now(row).status, now(row).outcome) == ("read", "read")


def test_the_interrupt_of_a_drain_hands_the_row_back(row: int) -> None:
    hold = take(Attachment, row, message="first", claimable=CLAIMABLE)
    assert hold
    with pytest.raises(Shutdown), hold.to_the_end(back_to="queued", failed="failed"):
        raise Shutdown
    assert (now(row).status, now(row).outcome) == ("queued", "its worker was stopped; runs again")


def test_a_deadline_ends_only_what_its_own_delivery_holds(row: int) -> None:
    zombie = take(Attachment, row, message="first", claimable=CLAIMABLE)
    heir = take(Attachment, row, message="first", claimable=CLAIMABLE)
    assert zombie and heir
    lost(Attachment, message(row, "first").copy(options={wire.DELIVERY: zombie.token}), "late", failed="failed")
    assert now(row).status == "running"
    lost(Attachment, message(row, "first").copy(options={wire.DELIVERY: heir.token}), "in time", failed="failed")
    assert (now(row).status, now(row).outcome) == ("failed", "in time")


def test_a_failure_that_is_tried_again_hands_the_row_back(row: int) -> None:
    hold = take(Attachment, row, message="first", claimable=CLAIMABLE)
    assert hold
    with pytest.raises(OSError, match="on fire"), hold.to_the_end(back_to="queued", failed="failed"):
        raise OSError("disk on fire")
    assert (now(row).status, now(row).outcome) == ("queued", "will be tried again: disk on fire")
    assert take(Attachment, row, message="second", claimable=CLAIMABLE)


@pytest.mark.parametrize(
    ("outages", "ends"),
    [(0, ("queued", "will be tried again")), (unspent.MOST_OUTAGES, ("failed", "gave up after 1 attempts"))],
)
def test_a_connection_that_broke_is_no_last_failure_while_it_uses_up_no_attempt(
    row: int, outages: int, ends: tuple[str, str]
) -> None:
    application.load(ROOT)
    with refused_port() as url:
        gone = raised(url)
    options = {"retries": 2, unspent.OUTAGES: outages}  # the lane has three attempts
    working = CurrentMessage()
    proxy = MessageProxy(Message("agent_realtime", "submit_approved_run", (row,), {}, options))
    working.before_process_message(process_broker(), proxy)
    try:
        hold = take(Attachment, row, message="first", claimable=CLAIMABLE)
        assert hold and is_last_attempt() and is_last_attempt(OSError("disk on fire"))
        with pytest.raises(type(gone)), hold.to_the_end(back_to="queued", failed="failed"):
            raise gone
    finally:
        working.after_process_message(process_broker(), proxy)
    assert now(row).status == ends[0] and str(now(row).outcome).startswith(ends[1])


@pytest.mark.parametrize("found", [None, "many", math.nan, -5])
def test_a_count_of_retries_that_is_none_makes_no_try_the_last(migrated: object, found: object) -> None:
    application.load(ROOT)
    working = CurrentMessage()
    proxy = MessageProxy(Message("agent_realtime", "submit_approved_run", (1,), {}, {"retries": found}))
    working.before_process_message(process_broker(), proxy)
    try:
        assert not is_last_attempt()
    finally:
        working.after_process_message(process_broker(), proxy)
