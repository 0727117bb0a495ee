"""A row whose worker is gone does not wait for its lease to lapse: its message, whatever becomes of it, sees to it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from books.leasing import SLACK
from books.models import RunStatus
from fleet import wire
from fleet.clock import clock
from tests.books.hosts import Host, hosts
from tests.books.test_agent_runs import now
from tests.books.test_zombies import LANE, Model, queued
from tests.books.test_zombies import model as model
from tests.waiting import wait_until

# The lane's own budget, twice: a process that is retired for a run may live that long for what runs beside it.
LEASE = timedelta(minutes=40) * 2 + SLACK


@pytest.fixture
def host(environment: object, model: Model, tmp_path: Path) -> Iterator[Host]:
    with hosts(tmp_path, LANE) as (started,):
        yield started


def running(row_id: int, model: Model) -> None:
    wait_until(lambda: model.asked(1), 20)
    row = now(row_id)
    assert row.started_at is not None and row.lease_until == row.started_at + LEASE


def kill(host: Host) -> None:
    (child,) = host.children()
    os.kill(child, signal.SIGKILL)


def test_the_message_of_a_killed_worker_takes_its_row_over_at_once(environment: Any, model: Model, host: Host) -> None:
    row_id, message_id = queued(environment)
    running(row_id, model)
    model.answer(2, "in the second run")
    kill(host)
    wait_until(lambda: now(row_id).status == RunStatus.PREPARED, 30)
    row = now(row_id)
    assert (row.attempts, row.lease_message, row.result) == (2, message_id, {"proposal": "in the second run"})


def test_the_row_of_a_killed_worker_whose_message_expired_meanwhile_is_ended_at_once(
    environment: Any, model: Model, host: Host
) -> None:
    expires = clock.now() + timedelta(seconds=6)
    row_id, _ = queued(environment, expires_at=wire.to_ms(expires))
    running(row_id, model)
    wait_until(lambda: clock.now() > expires)
    kill(host)
    wait_until(lambda: now(row_id).status == RunStatus.FAILED, 30)
    outcome = now(row_id).outcome
    assert outcome is not None
    assert re.match(r"its worker was lost, and it did not run again: prepare_run expired 0:00:\d\d", outcome), outcome
    assert host.logged("message_expired")
