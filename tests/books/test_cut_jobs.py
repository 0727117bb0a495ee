"""A job whose model never answers ends at its soft budget, in a state a person can read; in a real worker process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from dramatiq import Message

from books.models import AgentRun, RunKind, RunStatus
from fleet.broker import keys
from fleet.broker.broker import FleetBroker
from fleet.storage import session
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
QUEUE = "agent_batch"


@pytest.fixture
def never_answers(world: Any) -> Iterator[None]:
    over = threading.Event()

    def hold(*_: object) -> tuple[int, Any]:
        over.wait(60)
        return 503, {}

    world.reply = hold
    yield
    over.set()


@pytest.fixture
def lane(environment: object, never_answers: None, tmp_path: Path) -> Iterator[None]:
    """`fleet work agent_batch`, the bookkeeping's own."""
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "fleet", "--app", str(ROOT), "work", QUEUE],
            env={**os.environ, "FLEET_LOG_FORMAT": "json"},
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    yield
    worker.terminate()
    worker.wait(60)


def test_a_run_over_its_soft_budget_is_failed_and_says_where_it_was(
    environment: Any, lane: None, redis_client: redis.Redis
) -> None:
    with session() as s:
        row = AgentRun(
            kind=RunKind.PREPARE, status=RunStatus.QUEUED, idempotency_key=str(uuid.uuid4()), customer="c", input={}
        )
        s.add(row)
        s.flush()
        row_id = row.id
    sender = FleetBroker(url=environment.redis_url, namespace=environment.namespace)
    sender.enqueue(Message(QUEUE, "prepare_run", (row_id,), {}, {"time_limit": 6_000}))

    def ended() -> AgentRun | None:
        with session() as s:
            found = s.get_one(AgentRun, row_id)
            return found if found.status == RunStatus.FAILED else None

    found = wait_until(ended, 40)
    assert found.outcome == "timed out in step 1"
    assert (found.attempts, found.lease_until) == (1, None)
    details = keys.dead_details(environment.namespace, QUEUE)
    (letter,) = wait_until(lambda: redis_client.hvals(details), 30)
    assert json.loads(letter)["reason"] == "deadline"
    assert "timed out in step 1" in json.loads(letter)["exception"]
    sender.client.close()
