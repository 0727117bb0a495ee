"""What `fleet explain` and the record of runs say of jobs in a real lane, one of which is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import redis
from dramatiq import Message

from fleet import entry_runs, wire
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.entry_runs import LOST, settled
from tests.waiting import wait_until
from tests.workers.conftest import APP, Running

SLOT = datetime(2026, 3, 2, 3, 10, tzinfo=UTC)


def send_slot(lane: Running, name: str) -> str:
    """The message of a slot, as a beat sends it; its id in Redis."""
    options = {wire.ENTRY: "nightly", wire.SLOT: wire.to_ms(SLOT)}
    args = (str(lane.journal), name, str(lane.gate), 60.0)
    message = Message(queue_name="jobs", actor_name="wait", args=args, kwargs={}, options=options)
    return str(lane.sender.enqueue(message).options["redis_message_id"])


def explained(wanted: str, redis_url: str, namespace: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fleet", "--app", str(APP), "explain", wanted],
        env={**os.environ, "FLEET_REDIS_URL": redis_url, "FLEET_NAMESPACE": namespace},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert 2 <= len(done.stdout.splitlines()) <= 11, "a heading and ten lines"
    return done.stdout


def test_a_running_job_is_told_with_its_process_and_its_lane_with_both(
    supervise: Callable[..., Running], redis_url: str, namespace: str
) -> None:
    lane = supervise()
    lane.ready(1)
    id = send_slot(lane, "first")
    second = send_slot(lane, "second")
    [begun] = wait_until(lambda: lane.events("begin", "first"))
    wait_until(lambda: f", pid {begun[2]}, for " in explained(id, redis_url, namespace), 20)
    assert "of its budget 2m/3m, phase body" in explained(id, redis_url, namespace)
    assert "It waits first of 1; 1 of 1 processes serve lane jobs." in explained(second, redis_url, namespace)
    told = explained("jobs", redis_url, namespace)
    assert "1 of 1 processes serve it" in told and "1 jobs run in 1 threads; the longest, wait" in told
    assert "jobs: 1 wait" in told
    lane.gate.touch()


def test_a_run_whose_process_was_killed_stays_on_record_without_an_end_and_its_next_one_is_done(
    supervise: Callable[..., Running], redis_client: redis.Redis, namespace: str
) -> None:
    lane = supervise()
    lane.ready(1)
    send_slot(lane, "poor")
    [begun] = wait_until(lambda: lane.events("begin", "poor"))
    broker = FleetBroker(client=redis_client, namespace=namespace)
    assert [run.slot for run in entry_runs.read(broker, "nightly")] == [SLOT]
    os.kill(int(begun[2]), signal.SIGKILL)
    wait_until(lambda: len(lane.events("begin", "poor")) == 2, 30)
    lane.gate.touch()
    runs = wait_until(lambda: (found := entry_runs.read(broker, "nightly")) and found[-1].ended and found, 20)
    first, second = settled(runs, clock.now())
    assert (first.outcome, second.outcome) == (LOST, "done")
    assert first.ended == second.started and first.worker != second.worker
