"""Slots while PostgreSQL is away, never there, or refuses; and while a hook breaks: no body runs unclaimed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dramatiq import Middleware
from sqlalchemy import make_url
from structlog.testing import capture_logs

from fleet import queue, wire
from fleet.broker import keys
from tests.middleware.slot_rows import OF_SLOT, configure, delayed, entry, refused_port, rows, said
from tests.waiting import wait_until


def test_without_a_database_the_job_runs_and_nothing_asks_for_one(house: Any, caplog: pytest.LogCaptureFixture) -> None:
    ran: list[int] = []
    queue("work").actor(name="job")(lambda: ran.append(1)).send_with_options(**OF_SLOT)
    house.work()
    house.until_idle()
    assert ran == [1] and house.dead() == []
    assert not [record for record in caplog.records if record.levelname == "CRITICAL"]


def test_while_the_database_is_down_no_slot_runs_and_none_uses_up_an_attempt(
    recorded: Any, migrated_url: str, monkeypatch: pytest.MonkeyPatch, counted: Any
) -> None:
    ran: list[str] = []
    job = queue("work").actor(name="job", max_retries=0)(lambda name: ran.append(name))
    with refused_port() as url, capture_logs() as logs:
        configure(recorded, monkeypatch, url)
        recorded.work()
        job.send_with_options(args=("slot",), **OF_SLOT)
        job.send_with_options(args=("late",), **{**OF_SLOT, wire.ENTRY: "late", wire.EXPIRES_AT: 10**12})
        job.send("no slot")
        wait_until(lambda: counted("fleet_slot_claims_total", entry="nightly", answer="unanswered") >= 3)
        assert ran == ["no slot"] and delayed(recorded) <= 1
        configure(recorded, monkeypatch, migrated_url)
        recorded.until_idle()
    assert ran == ["no slot", "slot"] and recorded.dead() == []
    assert len(said(logs, "slots_unanswered")) == 1 and len(said(logs, "slots_back")) == 1
    assert {entry(row): row.state for row in rows()} == {"nightly": "done", "late": "expired"}


def test_an_end_that_could_not_be_written_is_written_when_the_database_is_back(
    recorded: Any, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused_port() as url:
        job = queue("work").actor(name="job")(lambda: configure(recorded, monkeypatch, url))
        job.send_with_options(**OF_SLOT)
        recorded.work()
        recorded.until_idle()
    configure(recorded, monkeypatch, migrated_url)
    assert [row.state for row in rows()] == ["running"], "it ended though nobody could write it"
    states: list[str] = []
    next_job = queue("work").actor(name="next")(lambda: states.extend(row.state for row in rows()))
    next_job.send_with_options(**{**OF_SLOT, wire.ENTRY: "others"})
    recorded.until_idle()
    assert states == ["done", "running"]
    assert [row.state for row in rows()] == ["done", "done"]


@pytest.mark.parametrize("wrong", ["no tables", "an option that there is not"])
def test_a_database_that_somebody_mends_while_messages_wait_costs_no_slot_its_run(
    recorded: Any, migrated_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch, counted: Any, wrong: str
) -> None:
    ran: list[int] = []
    job = queue("work").actor(name="job", max_retries=0)(lambda: ran.append(1))
    odd = make_url(migrated_url).update_query_dict({"nonsense": "1"}).render_as_string(hide_password=False)
    configure(recorded, monkeypatch, database_url if wrong == "no tables" else odd)
    recorded.work()
    job.send_with_options(**OF_SLOT)
    wait_until(lambda: counted("fleet_slot_claims_total", entry="nightly", answer="unanswered") >= 3)
    configure(recorded, monkeypatch, migrated_url)
    recorded.until_idle()
    assert ran == [1] and recorded.dead() == []


@pytest.mark.parametrize("late", [{}, {wire.EXPIRES_AT: 10**12}], ids=["in time", "late"])
def test_an_id_that_is_no_text_is_a_dead_letter_and_keeps_no_other_slot_from_its_end(
    recorded: Any, late: dict[str, int]
) -> None:
    job = queue("work").actor(name="job")(lambda: None)
    sent = job.message_with_options(**{**OF_SLOT, wire.ENTRY: "others", wire.NONCE: "n-1"}, **late)
    client, ns = recorded.broker.client, recorded.broker.namespace
    client.hset(keys.bodies(ns, "work"), "odd", json.dumps({**sent.asdict(), "message_id": {}}))
    client.rpush(keys.queue(ns, "work"), "odd")
    with capture_logs() as logs:
        recorded.work()
        wait_until(lambda: client.hexists(keys.dead_bodies(ns, "work"), "odd"))
        job.send_with_options(**OF_SLOT)
        recorded.until_idle()
    assert {entry(row): row.state for row in rows()} == {"nightly": "done"}
    assert not said(logs, "slots_unanswered")


def test_a_slot_that_no_row_can_hold_is_a_dead_letter_and_does_not_come_back_for_ever(recorded: Any) -> None:
    queue("work").actor(name="job")(lambda: None).send_with_options(**{**OF_SLOT, wire.ENTRY: "night\x00ly"})
    with capture_logs() as logs:
        recorded.work()
        recorded.until_idle()
    assert len(recorded.dead()) == 1
    assert said(logs, "slot_end_refused")


def test_a_hook_that_breaks_over_a_job_that_ended_leaves_its_slot_live_for_the_next_run(recorded: Any) -> None:
    broke: list[str] = []

    class Breaks(Middleware):
        def after_process_message(self, *_: Any, **__: Any) -> None:
            if not broke:
                broke.extend(row.state for row in rows())
                raise ValueError("once")

    recorded.broker.add_middleware(Breaks())
    queue("work").actor(name="job")(lambda: None).send_with_options(**OF_SLOT)
    recorded.work()
    wait_until(lambda: broke)
    wait_until(lambda: delayed(recorded))
    assert [row.state for row in rows()] == ["running"]
    recorded.until_idle()
    assert [(row.state, row.starts) for row in rows()] == [("done", 2)]


def test_a_hook_that_goes_on_breaking_ends_the_slot_with_its_message(recorded: Any) -> None:
    class Breaks(Middleware):
        def after_process_message(self, *_: Any, **__: Any) -> None:
            raise ValueError("each time")

    recorded.broker.add_middleware(Breaks())
    queue("work").actor(name="job")(lambda: None).send_with_options(**OF_SLOT)
    recorded.work()
    recorded.until_idle()
    assert len(recorded.dead()) == 1
    assert [(row.state, row.starts) for row in rows()] == [("failed", 3)]
