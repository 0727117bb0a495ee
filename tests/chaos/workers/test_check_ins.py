"""What a worker process cannot tell Sentry any more, its supervisor does: an interrupted run is an error at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from dramatiq import Message

from fleet import wire
from fleet.broker import FleetBroker
from tests.chaos.workers.lane import QUEUE, ChaosLane
from tests.middleware.ingest import Ingest
from tests.waiting import wait_until

SLOT = 1_772_000_000_000
SCHEDULE = """
from datetime import timedelta
from fleet import Entry

SCHEDULE = [
    Entry("audit", cron="0 3 * * *", actor="work", expires=timedelta(hours=1), because="the test reads its monitor")
]
"""


@pytest.fixture
def ingest(lane: ChaosLane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ingest]:
    server = Ingest()
    monkeypatch.setenv("FLEET_SENTRY_DSN", server.dsn)
    (lane.app / "config" / "schedule.py").write_text(SCHEDULE)
    yield server
    lane.end()
    server.close()


def send_slot(lane: ChaosLane, redis_url: str, actor: str, *args: object) -> None:
    """One message of the entry, as the beat sends it."""
    id = f"audit@{SLOT}"
    options: dict[str, Any] = {wire.ENTRY: "audit", wire.SLOT: SLOT}
    message = Message(QUEUE, actor, (str(lane.folder), "slot", *args), {}, options, message_id=id)
    FleetBroker(url=redis_url, namespace=lane.namespace, middleware=[]).enqueue(message)


def said(ingest: Ingest) -> list[tuple[str, bool]]:
    """Status, and whether it is the slot's own check-in."""
    check_ins = ingest.check_ins()
    own = next((one["check_in_id"] for one in check_ins if one["status"] == "in_progress"), None)
    return [(one["status"], one["check_in_id"] == own) for one in check_ins]


def test_a_job_past_its_hard_budget_is_an_error(lane: ChaosLane, ingest: Ingest, redis_url: str) -> None:
    lane.start(processes=1, threads=1)
    send_slot(lane, redis_url, "hang", "sleep", 60)
    wait_until(lambda: len(said(ingest)) >= 2, 20)
    assert said(ingest) == [("in_progress", True), ("error", True)]
    assert ingest.check_ins()[1]["monitor_config"]["schedule"] == {"type": "crontab", "value": "0 3 * * *"}


def test_a_run_whose_process_died_is_an_error_and_a_poison_ends_as_one(
    lane: ChaosLane, ingest: Ingest, redis_url: str
) -> None:
    lane.start(processes=1, threads=1)
    send_slot(lane, redis_url, "poison", "sigkill", "strike")
    wait_until(lambda: said(ingest))
    lane.open("strike")
    wait_until(lambda: lane.dead(), 30)
    wait_until(lambda: ("error", True) in said(ingest))
    # The second run dies at once: whether Sentry heard that it began is not promised.
    assert [one for one in said(ingest)[1:] if one != ("in_progress", True)] == [("error", False), ("error", True)]


def test_a_run_that_a_deploy_cut_off_is_an_error_and_its_repetition_ends_well(
    lane: ChaosLane, ingest: Ingest, redis_url: str
) -> None:
    first = lane.start(processes=1, threads=1, drain=0.5)
    send_slot(lane, redis_url, "work", 60, "go")
    lane.until_running(1)
    os.kill(first.process.pid, signal.SIGTERM)
    first.process.wait(20)
    assert said(ingest) == [("in_progress", True), ("error", False)]
    lane.start(processes=1, threads=1, drain=0.5)
    wait_until(lambda: len(said(ingest)) == 3)
    lane.open("go")
    wait_until(lambda: len(said(ingest)) == 4)
    assert said(ingest)[2:] == [("in_progress", True), ("ok", True)]
