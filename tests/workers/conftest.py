"""A supervisor of the test's own application, started as a real process in the test's own Redis namespace."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import redis
from dramatiq import Message
from dramatiq.brokers.redis import RedisBroker

from tests.waiting import wait_until

APP = Path(__file__).parent / "app"


@dataclass
class Running:
    """A supervisor, its log, the journal of its jobs, and the file that lets them go."""

    process: subprocess.Popen[bytes]
    log: Path
    journal: Path
    gate: Path
    sender: RedisBroker
    sent: list[str] = field(default_factory=list)

    def children(self) -> set[int]:
        """The lane's processes, without its spare, and without what is only about to be one of either."""
        found = set()
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):  # it ended between the two looks
                if "fleet.workers.child" in child.cmdline():
                    found.add(child.pid)
        return found

    def logged(self, event: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if re.search(rf"\b{event}\b", line)]

    def events(self, event: str, name: str = "") -> list[list[str]]:
        """Lines of the journal as words: event, name, pid, message id, time."""
        lines = [line.split() for line in self.journal.read_text().splitlines()] if self.journal.exists() else []
        return [words for words in lines if words[0] == event and words[1].startswith(name)]

    def ready(self, processes: int) -> None:
        wait_until(lambda: len(self.logged("worker_ready")) >= processes, 20)

    def send(self, name: str, seconds: float = 60.0, delay_ms: int | None = None) -> None:
        """As a stock producer would."""
        args = (str(self.journal), name, str(self.gate), seconds)
        options = {"redis_message_id": str(uuid.uuid4())}
        message = Message(queue_name="jobs", actor_name="wait", args=args, kwargs={}, options=options)
        self.sender.enqueue(message, delay=delay_ms)


@pytest.fixture
def supervise(
    redis_url: str, redis_client: redis.Redis, namespace: str, tmp_path: Path
) -> Iterator[Callable[..., Running]]:
    """Starts supervisors of the lane `jobs`; whatever is left of them is ended afterwards."""
    started: list[Running] = []

    def start(app: Path = APP, **environment: str) -> Running:
        log = tmp_path / f"log-{len(started)}"
        with log.open("wb") as log_file:
            process = subprocess.Popen(
                [sys.executable, "-m", "fleet", "--app", str(app), "work", "jobs"],
                env={
                    **os.environ,
                    "FLEET_REDIS_URL": redis_url,
                    "FLEET_NAMESPACE": namespace,
                    "FLEET_LOG_FORMAT": "json",
                    "PYTHONUNBUFFERED": "",  # as in production
                    **environment,
                },
                stdout=log_file,
                stderr=subprocess.STDOUT,
            )
        sender = RedisBroker(url=redis_url, namespace=namespace)
        sender.declare_queue("jobs")
        started.append(Running(process, log, tmp_path / "journal", tmp_path / "gate", sender))
        return started[-1]

    yield start
    (tmp_path / "gate").touch()
    for running in started:
        running.process.terminate()
        running.process.wait(30)
        running.sender.close()
