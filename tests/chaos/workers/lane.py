"""A lane under attack: its supervisors, the processes below them, its journal, and its keys in Redis.

Processes are found by the application's root, which stands in their command lines and is the test's own: also those
whose supervisor is gone.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from dramatiq import Message

from fleet.broker import FleetBroker, keys
from tests.broker.station import places
from tests.chaos.workers.journal import Journal
from tests.waiting import wait_until
from tests.workers.conftest import Running

QUEUE = "jobs"
LOST_AFTER = 3.0  # seconds, for the tests in which somebody must be found lost


class ChaosLane:
    """The lane `jobs` of an application that the test may change; `start` runs one more supervisor of it."""

    def __init__(
        self, supervise: Callable[..., Running], client: redis.Redis, url: str, namespace: str, folder: Path, app: Path
    ) -> None:
        self._supervise, self.client, self.namespace = supervise, client, namespace
        self.folder, self.app = folder, app
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.journal = Journal(folder / "journal")
        self.started: list[Running] = []
        self._sender = FleetBroker(url=url, namespace=namespace, middleware=[])
        self._sender.declare_queue(QUEUE)

    def start(self, *, lost_after: float = 30.0, **shape: object) -> Running:
        """A supervisor, once its processes work; `shape` is the lane's (see `app/config/lanes.py`)."""
        running = self._supervise(
            self.app,
            TEST_LANE=json.dumps(shape),
            TMPDIR=str(self.temporary),
            FLEET_LOST_AFTER=f"PT{lost_after}S",
        )
        self.started.append(running)
        processes = int(str(shape["processes"]))
        wait_until(lambda: len(running.logged("worker_ready")) >= processes or running.process.poll() is not None, 20)
        assert running.process.poll() is None, running.log.read_text()[-2000:]
        return running

    def send(self, actor: str, name: str, *args: object) -> str:
        """One message; returns its id, which is not the one that its queue knows it by."""
        message = Message(QUEUE, actor, (str(self.folder), name, *args), {}, {})
        self._sender.enqueue(message)
        return message.message_id

    def open(self, gate: str) -> None:
        (self.folder / gate).touch()

    def letters(self) -> dict[str, dict[str, Any]]:
        """Message id -> details of the dead letters; each stands in the list, has its body and its details."""
        with self.client.pipeline() as pipe:  # one transaction: no letter is seen half written
            pipe.zrange(keys.dead(self.namespace, QUEUE), 0, -1)
            pipe.hgetall(keys.dead_bodies(self.namespace, QUEUE))
            pipe.hgetall(keys.dead_details(self.namespace, QUEUE))
            listed, bodies, details = pipe.execute()
        return {Message.decode(bodies[id]).message_id: json.loads(details[id]) for id in listed}

    def dead(self) -> set[str]:
        return set(self.letters())

    def held(self) -> set[str]:
        """The ids of all that has no end yet."""
        bodies = self.client.hvals(keys.bodies(self.namespace, QUEUE))
        return {Message.decode(body).message_id for body in bodies}

    def left(self) -> dict[bytes, list[str]]:
        """Everything that is anywhere, but dead letters that are nowhere else."""
        return {id: found for id, found in places(self.client, self.namespace, QUEUE).items() if found != ["dead"]}

    def until_settled(self, seconds: float) -> None:
        """Wait until no message waits, runs or is delayed: its body is then gone, wherever its id was."""
        bodies = [keys.bodies(self.namespace, name) for name in (QUEUE, keys.delayed(QUEUE))]
        try:
            wait_until(lambda: not self.client.exists(*bodies), seconds)
        except AssertionError:
            pytest.fail(f"not settled within {seconds} s: {self.left()}, running: {self.journal.running()}"[:3000])

    def until_running(self, count: int, prefix: str = "", seconds: float = 20) -> None:
        wait_until(lambda: len(self.journal.running(prefix)) >= count, seconds)

    def processes(self) -> list[psutil.Process]:
        """Every live process of this application, supervisors among them."""
        return [one for one in psutil.process_iter() if str(self.app) in _command(one) and alive(one.pid)]

    def children(self) -> list[int]:
        """The worker processes, without those that run a suspect alone and one that has not begun its program."""
        return [one.pid for one in self.processes() if "fleet.workers.child" in _command(one)]

    def end(self) -> None:
        """End whatever the test has left: a second signal ends a drain, and what does not hear it is killed."""
        ends = time.monotonic() + 5
        while time.monotonic() < ends and any(running.process.poll() is None for running in self.started):
            for running in self.started:
                running.process.terminate()
            time.sleep(0.1)
        for one in self.processes():
            one.kill()
        for running in self.started:
            running.process.wait(10)
        wait_until(lambda: not self.processes())
        self._sender.client.close()


def boards(supervisor: int) -> set[Path]:
    """The files in shared memory that a supervisor reads its children from."""
    return {Path(name) for name in re.findall(r"/dev/shm/\S+", Path(f"/proc/{supervisor}/maps").read_text())}


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def alive(pid: int) -> bool:
    """Whether a process runs or could run again; one that is only not waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(pid: int) -> float:
    """SIGKILL, and when."""
    at = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    return at


def until_gone(pids: Iterable[int], seconds: float) -> float:
    """Wait until none of these processes lives; when that was seen."""
    asked = list(pids)
    wait_until(lambda: not any(alive(pid) for pid in asked), seconds)
    return time.monotonic()
