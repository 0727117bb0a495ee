"""Every line of a job says which job it is, none says with what arguments; read from a real worker process's log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.environment import child_path

ROOT = Path(__file__).parent.parent.parent
SECRET = "DE89370400440532013000"
JOBS = """
import sys
from dramatiq import Middleware
from fleet.workers.worker import FleetWorker
from fleet import Budget, Lane, Retry, queue
from fleet.app import process_broker, settings
from fleet.errors import RetryLater
from fleet.logs import configure, get_logger
from datetime import timedelta

ms = lambda n: timedelta(milliseconds=n)
configure("json", "INFO")
log = get_logger("jobs")
work = queue("work")
short = Budget(ms(100), ms(9000), because="the test waits for its end")

@work.actor
def good(iban): log.info("inside")

@work.actor
def bad(iban): raise ValueError("the bank is shut")

@work.actor(retry=Retry(attempts=1, first=ms(10), longest=ms(10)))
def later(iban): raise RetryLater("429", after=ms(10))

@work.actor(budget=short)
def endless(iban):
    import time
    while True: time.sleep(0.005)

@work.actor
def bare(*iban): raise NotImplementedError

class Between(Middleware):
    # Stands above all: what is still bound when the thread takes up its next message was left over from the last.
    def before_process_message(self, broker, message): log.info("between")

broker = process_broker()
broker.middleware.insert(0, Between())
retry = Retry(attempts=2, first=ms(10), longest=ms(20))
broker.lanes = {"work": Lane("l", ["work"], waits_for="a test", processes=1, threads=1, budget=short, retry=retry)}
good.send_with_options(args=(sys.argv[1],), entry="nightly", slot=1, expires_at=None)
bad.send(sys.argv[1]); later.send(iban=sys.argv[1]); endless.send(sys.argv[1]); bare.send(sys.argv[1], sys.argv[1])
good.send_with_options(args=(sys.argv[1],), expires_at=10**12)
worker = FleetWorker(broker, worker_timeout=50, worker_threads=1)
worker.start()
broker.join("work", interval=20)
log.info("outside")
worker.stop()
"""


@pytest.fixture(scope="module")
def log_text(servers: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one process wrote that ran a job of each kind, each with the secret as its argument."""
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "jobs.py").write_text(JOBS)
    namespace = f"test-{folder.name}-{os.getpid()}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLEET_")}
    environment = kept | {
        "FLEET_REDIS_URL": servers.redis_url,
        "FLEET_NAMESPACE": namespace,
        "PYTHONPATH": child_path(ROOT),
    }
    ended = subprocess.run(
        [sys.executable, str(folder / "jobs.py"), SECRET],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    with redis.Redis.from_url(servers.redis_url) as client:
        for key in client.scan_iter(f"{namespace}:*", count=1000):
            client.delete(key)
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


@pytest.fixture
def events(log_text: str) -> Callable[[str], list[dict[str, Any]]]:
    found = [json.loads(line) for line in log_text.splitlines() if line.startswith("{")]
    return lambda name: [event for event in found if event["event"] == name]


Events = Callable[[str], list[dict[str, Any]]]


def test_a_line_of_a_job_carries_message_actor_queue_attempt_and_origin(events: Events) -> None:
    (inside,) = events("inside")
    assert {name: inside[name] for name in ("actor", "queue", "attempt", "origin")} == {
        "actor": "good",
        "queue": "work",
        "attempt": 1,
        "origin": "nightly",
    }
    assert len(inside["message_id"]) == 36


def test_nothing_stays_bound_after_a_job_or_a_skip(events: Events) -> None:
    assert len(events("between")) > 6
    for event in events("between"):
        assert not {"message_id", "actor", "queue", "attempt", "origin"} & event.keys()


def test_each_end_is_said_once_with_its_attempt_and_whether_it_is_final(events: Events) -> None:
    (again,) = [event for event in events("job_retries") if event["actor"] == "bad"]
    assert (again["attempt"], again["level"]) == (1, "warning")
    (failed,) = [event for event in events("job_failed") if event["actor"] == "bad"]
    assert (failed["attempt"], failed["level"], failed["dead_letter"]) == (2, "error", True)
    (cut,) = events("job_deadline")
    assert (cut["actor"], cut["dead_letter"]) == ("endless", True)
    (late,) = events("message_expired")
    assert late["actor"] == "good"


def test_arguments_are_in_no_line_whatever_happened_to_their_job(log_text: str) -> None:
    assert [line for line in log_text.splitlines() if SECRET in line] == []
    assert "the bank is shut" in log_text, "why it failed must still be said"
