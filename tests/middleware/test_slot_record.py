"""PostgreSQL holds a row for each message that a worker took up for a slot, and how it ended."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from dramatiq import Message
from sqlalchemy import delete, select
from structlog.testing import capture_logs

from fleet import app as application
from fleet import queue, wire
from fleet.settings import Settings
from fleet.storage import engine as storage
from fleet.storage import session
from fleet.storage.tables import SlotRun
from tests.waiting import wait_until

SLOT = datetime(2026, 3, 2, 1, tzinfo=UTC)
OF_SLOT = {wire.ENTRY: "nightly", wire.SLOT: wire.to_ms(SLOT)}


def forget_database() -> None:
    """Drop this process's engine and its sessions, as the root's `environment` does."""
    storage.database.cache_clear()
    storage._sessions.cache_clear()


@pytest.fixture
def recorded(house: Any, migrated_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The house with a migrated database."""
    configure(house, monkeypatch, migrated_url)
    yield house
    house.stop()
    with session() as s:
        s.execute(delete(SlotRun))
    storage.database().dispose()
    forget_database()


def configure(house: Any, monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    settings = Settings(
        redis_url=application.settings().redis_url, namespace=house.broker.namespace, database_url=database_url
    )
    monkeypatch.setattr(application, "settings", lambda: settings)
    forget_database()


def rows() -> list[SlotRun]:
    with session() as s:
        return list(s.scalars(select(SlotRun).order_by(SlotRun.started_at)))


def test_a_slots_message_leaves_one_row_that_says_how_it_ended(recorded: Any) -> None:
    message = queue("work").actor(name="job")(lambda: None).send_with_options(**OF_SLOT)
    recorded.work()
    (row,) = wait_until(lambda: [row for row in rows() if row.outcome])
    assert (row.entry, row.slot, row.message_id) == ("nightly", SLOT, message.message_id)
    assert (row.starts, row.outcome) == (1, "done")
    assert row.ended_at is not None and row.ended_at >= row.started_at


def test_two_messages_of_one_slot_leave_two_rows(recorded: Any) -> None:
    job = queue("work").actor(name="job")(lambda: None)
    for _ in range(2):
        job.send_with_options(**OF_SLOT)
    recorded.work()
    recorded.until_idle()
    assert len(rows()) == 2, "a slot that fired twice does not show"


def test_only_the_message_of_the_slot_itself_is_recorded(recorded: Any) -> None:
    leaf = queue("work").actor(name="leaf")(lambda: None)
    queue("work").actor(name="root")(lambda: leaf.send() and None).send_with_options(**OF_SLOT)
    leaf.send()
    recorded.work()
    recorded.until_idle()
    assert len(rows()) == 1


def test_a_message_delivered_again_counts_its_starts_in_the_same_row(recorded: Any, redis_client: Any) -> None:
    job = queue("work").actor(name="job")(lambda: None)
    message = job.message_with_options(**OF_SLOT)
    recorded.work()
    for _ in range(2):
        recorded.broker.enqueue(Message(**message.asdict()))
        recorded.until_idle()
    (row,) = rows()
    assert (row.starts, row.outcome) == (2, "done")


def test_each_end_has_its_word(recorded: Any) -> None:
    words: dict[str, str] = {}

    def fail() -> None:
        raise ValueError("not tonight")

    jobs = {
        "failed": queue("work").actor(name="failing", max_retries=0)(fail),
        "expired": queue("work").actor(name="late")(lambda: None),
        "done": queue("work").actor(name="good")(lambda: None),
    }
    for word, job in jobs.items():
        expiry = {wire.EXPIRES_AT: 1} if word == "expired" else {}
        words[job.send_with_options(**OF_SLOT, **expiry).message_id] = word
    recorded.work()
    recorded.until_idle()
    assert {row.message_id: row.outcome for row in rows()} == words


def test_a_retry_stands_in_the_same_row_and_its_last_end_counts(recorded: Any) -> None:
    tries: list[int] = []

    @queue("work").actor
    def job() -> None:
        (row,) = rows()
        assert row.outcome is None and row.ended_at is None, "a row whose job runs says that it ended"
        tries.append(row.starts)
        if len(tries) < 3:
            raise ValueError("not yet")

    job.send_with_options(**OF_SLOT)
    recorded.work()
    recorded.until_idle()
    assert tries == [1, 2, 3]
    assert [(row.starts, row.outcome) for row in rows()] == [(3, "done")]


def test_without_a_database_the_job_runs_and_nothing_asks_for_one(house: Any, caplog: pytest.LogCaptureFixture) -> None:
    ran: list[int] = []
    queue("work").actor(name="job")(lambda: ran.append(1)).send_with_options(**OF_SLOT)
    house.work()
    house.until_idle()
    assert ran == [1] and house.dead() == []
    assert not [record for record in caplog.records if record.levelname == "CRITICAL"]


def test_a_database_that_is_down_stops_no_job_and_is_said(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken, capture_logs() as logs:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        configure(house, monkeypatch, f"postgresql://nobody@127.0.0.1:{taken.getsockname()[1]}/nothing")
        ran: list[int] = []
        queue("work").actor(name="job")(lambda: ran.append(1)).send_with_options(**OF_SLOT)
        house.work()
        house.until_idle()
        house.stop()
        storage.database().dispose()
        forget_database()
    assert ran == [1] and house.dead() == []
    said = [line["what"] for line in logs if line["event"] == "slot_not_recorded"]
    assert said == ["start", "end"]


def test_what_ends_the_row_of_a_lost_job_is_no_run_of_its_slot(recorded: Any) -> None:
    queue("work").actor(name="job", on_lost=lambda message, reason: None)(lambda: None)
    lost = Message("work", "job", (), {}, {**OF_SLOT, wire.LOST: "hard budget"}, message_id="the-job-lost")
    recorded.broker.enqueue(lost)
    recorded.work()
    recorded.until_idle()
    assert rows() == [] and recorded.dead() == []
