"""A slot's body runs under one fire's message; PostgreSQL holds a row a slot that says whose it is and how it ended."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import dramatiq
import pytest
from dramatiq import Message
from sqlalchemy import func, update
from structlog.testing import capture_logs

from fleet import queue, wire
from fleet.errors import RetryLater
from fleet.storage import session
from fleet.storage.tables import Slot
from tests.middleware.slot_rows import OF_SLOT, SLOT, configure, entry, rows, said
from tests.waiting import wait_until


def test_a_slots_message_leaves_one_row_that_says_how_it_ended(recorded: Any, counted: Any) -> None:
    job = queue("work").actor(name="job")(lambda: None)
    message = job.send_with_options(**OF_SLOT, **{wire.NONCE: "n-1"})
    recorded.work()
    recorded.until_idle()
    (row,) = rows()
    assert (entry(row), row.slot, row.message_id, row.nonce) == ("nightly", SLOT, message.message_id, "n-1")
    assert (row.state, row.fires, row.starts, row.refused) == ("done", 1, 1, 0)
    assert row.ended_at is not None and row.ended_at >= row.started_at
    assert counted("fleet_slot_claims_total", entry="nightly", answer="first") == 1


def test_another_fires_message_for_an_ended_slot_is_discarded_and_counted(recorded: Any, counted: Any) -> None:
    """As after a failover that forgot: the same message id, which is derived from the slot, and another nonce."""
    ran: list[str] = []
    job = queue("work").actor(name="job")(lambda: ran.append("ran"))
    recorded.work()
    with capture_logs() as logs:
        for nonce in ("n-1", "n-2"):
            message = Message("work", "job", (), {}, {**OF_SLOT, wire.NONCE: nonce}, message_id="nightly@1")
            recorded.broker.enqueue(message)
            recorded.until_idle()
    assert ran == ["ran"] and recorded.dead() == [] and job.actor_name == "job"
    assert [(row.nonce, row.state, row.fires, row.refused) for row in rows()] == [("n-1", "done", 1, 1)]
    (line,) = said(logs, "slot_message_discarded")
    assert (line["entry"], line["nonce"], line["slot_is"]) == ("nightly", "n-2", "done")
    assert counted("fleet_slot_claims_total", entry="nightly", answer="discarded") == 1
    assert counted("fleet_messages_total", queue="work", actor="job", outcome="discarded") == 1


def test_two_fleets_on_one_database_each_run_the_slot_of_their_entry(
    recorded: Any, neighbour: Any, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have an entry `nightly`, at one time, as who copied it out of the same schedule."""
    ran: list[str] = []
    for house in (recorded, neighbour):
        configure(house, monkeypatch, migrated_url)
        job = dramatiq.actor(ran.append, actor_name="job", broker=house.broker, queue_name="work")
        job.send_with_options(args=(house.broker.namespace,), **OF_SLOT)
        house.work()
        house.until_idle()
        house.stop()
    assert ran == [recorded.broker.namespace, neighbour.broker.namespace]
    assert [(row.state, row.fires, row.starts, row.refused) for row in rows()] == [("done", 1, 1, 0)] * 2
    assert [entry(row) for row in rows()].count("nightly") == 1, "one of them is this fleet's"


def test_messages_from_before_nonces_are_told_apart_by_their_ids(recorded: Any) -> None:
    ran: list[str] = []
    job = queue("work").actor(name="job")(lambda: ran.append("ran"))
    recorded.work()
    for _ in range(2):
        job.send_with_options(**OF_SLOT)
        recorded.until_idle()
    assert ran == ["ran"]


def test_another_fires_message_waits_for_a_live_slot_to_end_and_uses_up_no_attempt(recorded: Any, counted: Any) -> None:
    go, runs = threading.Event(), list[int]()

    @queue("work").actor(max_retries=0)
    def job() -> None:
        runs.append(1)
        go.wait(20)

    recorded.work()
    job.send_with_options(**OF_SLOT)
    wait_until(lambda: runs)
    with capture_logs() as logs:
        job.send_with_options(**OF_SLOT)
        wait_until(lambda: counted("fleet_slot_claims_total", entry="nightly", answer="waits") >= 3)
        assert len(runs) == 1
        go.set()
        recorded.until_idle()
    assert len(runs) == 1 and recorded.dead() == []
    assert said(logs, "slot_message_discarded") and said(logs, "slot_message_waits")
    assert counted("fleet_messages_total", queue="work", actor="job", outcome="waits") >= 3
    assert [(row.state, row.fires) for row in rows()] == [("done", 1)]


def test_a_slot_whose_lease_lapsed_is_taken_over_by_the_message_that_waits(recorded: Any) -> None:
    go, runs = threading.Event(), list[int]()

    @queue("work").actor
    def job() -> None:
        runs.append(1)
        if len(runs) == 1:
            go.wait(20)

    recorded.work()
    job.send_with_options(**OF_SLOT)
    wait_until(lambda: runs)
    second = job.send_with_options(**OF_SLOT)
    wait_until(lambda: rows()[0].refused)
    with session() as s, capture_logs() as logs:
        s.execute(update(Slot).values(lease_until=func.now()))
        s.commit()
        wait_until(lambda: len(runs) == 2)
        wait_until(lambda: rows()[0].state == "done")
        go.set()  # the first, whose lease lapsed, ends late
        recorded.until_idle()
    (row,) = rows()
    assert (row.nonce, row.state, row.fires, row.starts) == (second.message_id, "done", 2, 2)
    assert said(logs, "slot_taken_over") and said(logs, "slot_end_was_stale")


def test_a_slot_that_waits_for_its_retry_is_nobody_elses(recorded: Any) -> None:
    runs: list[str] = []

    @queue("work").actor
    def job(name: str) -> None:
        runs.append(name)
        if len(runs) == 1:
            raise RetryLater("not yet", timedelta(seconds=1))

    recorded.work()
    job.send_with_options(args=("first",), **OF_SLOT)
    wait_until(lambda: rows() and rows()[0].state == "waiting")
    job.send_with_options(args=("second",), **OF_SLOT)
    recorded.until_idle()
    assert runs == ["first", "first"]
    assert [(row.state, row.fires, row.starts) for row in rows()] == [("done", 1, 2)]


def test_a_retry_keeps_its_row_and_its_last_end_counts(recorded: Any) -> None:
    seen: list[tuple[str, int]] = []

    @queue("work").actor
    def job() -> None:
        (row,) = rows()
        assert row.ended_at is None, "a row whose job runs says that it ended"
        seen.append((row.state, row.starts))
        if len(seen) < 3:
            raise ValueError("not yet")

    job.send_with_options(**OF_SLOT)
    recorded.work()
    recorded.until_idle()
    assert seen == [("running", 1), ("running", 2), ("running", 3)]
    assert [(row.starts, row.state) for row in rows()] == [(3, "done")]


def test_a_message_delivered_again_passes_and_counts_its_starts(recorded: Any) -> None:
    message = queue("work").actor(name="job")(lambda: None).message_with_options(**OF_SLOT)
    recorded.work()
    for _ in range(2):
        recorded.broker.enqueue(Message(**message.asdict()))
        recorded.until_idle()
    assert [(row.starts, row.state, row.refused) for row in rows()] == [(2, "done", 0)]


def test_each_end_has_its_word(recorded: Any) -> None:
    def fail() -> None:
        raise ValueError("not tonight")

    jobs = {
        "failed": queue("work").actor(name="failing", max_retries=0)(fail),
        "expired": queue("work").actor(name="late")(lambda: None),
        "done": queue("work").actor(name="good")(lambda: None),
    }
    for word, job in jobs.items():
        expiry = {wire.EXPIRES_AT: 10**12} if word == "expired" else {}
        job.send_with_options(**{**OF_SLOT, wire.ENTRY: word}, **expiry)
    recorded.broker.enqueue(Message("work", "nobody", (), {}, {**OF_SLOT, wire.ENTRY: "unknown", wire.LEFT: 1}))
    recorded.work()
    recorded.until_idle()
    states = {"failed": "failed", "expired": "expired", "done": "done", "unknown": "failed"}
    assert {entry(row): row.state for row in rows()} == states
    assert {entry(row): row.starts for row in rows()} == {"failed": 1, "expired": 0, "done": 1, "unknown": 0}


def test_only_the_message_of_the_slot_itself_claims(recorded: Any) -> None:
    leaf = queue("work").actor(name="leaf")(lambda: None)
    queue("work").actor(name="root")(lambda: leaf.send() and None).send_with_options(**OF_SLOT)
    leaf.send()
    recorded.work()
    recorded.until_idle()
    assert len(rows()) == 1


def test_a_message_fired_by_hand_is_let_through(recorded: Any) -> None:
    ran: list[int] = []
    job = queue("work").actor(name="job")(lambda: ran.append(1))
    for _ in range(2):
        job.send_with_options(**{wire.ENTRY: "nightly", wire.NONCE: "n-1"})
    recorded.work()
    recorded.until_idle()
    assert ran == [1, 1] and rows() == []


def test_what_ends_the_row_of_a_lost_job_is_no_run_of_its_slot(recorded: Any) -> None:
    queue("work").actor(name="job", on_lost=lambda message, reason: None)(lambda: None)
    lost = Message("work", "job", (), {}, {**OF_SLOT, wire.LOST: "hard budget"}, message_id="the-job-lost")
    recorded.broker.enqueue(lost)
    recorded.work()
    recorded.until_idle()
    assert rows() == [] and recorded.dead() == []
