"""A deploy rolls, as docs/deploying.md says it should: two releases side by side, and nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from dramatiq import Message
from sqlalchemy import Engine, create_engine, text

from fleet import ledger, wire
from fleet.broker import FleetBroker, keys
from fleet.storage.engine import psycopg_url
from tests.deploy import releases
from tests.environment import child_path
from tests.waiting import wait_until

QUEUE = "work"
ROOT = Path(__file__).parent.parent.parent


@dataclass
class Roll:
    """Both releases, their processes, what was sent and what ran."""

    folder: Path
    environment: dict[str, str]
    broker: FleetBroker
    database: Engine
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    sent: dict[str, list[str]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.old, self.new = releases.old(self.folder), releases.new(self.folder)

    def fleet(self, root: Path, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fleet", *command],
            cwd=root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def start(self, root: Path, *command: str) -> None:
        """Start a lane or a beat of a release."""
        name = f"{root.name} {command[0]}"
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "fleet", *command],
                cwd=root,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def logged(self, name: str, event: str) -> int:
        return (self.folder / f"{name}.log").read_text().count(f'"{event}"')

    def end(self, name: str) -> None:
        """SIGTERM, and the end that a drain has."""
        process = self.processes.pop(name)
        process.terminate()
        assert process.wait(45) == 0, (self.folder / f"{name}.log").read_text()[-3000:]

    def send(self, actor: str, times: int, *more: Any) -> None:
        for _ in range(times):
            job = f"{actor}-{next(self.numbers)}"
            self.broker.enqueue(Message(QUEUE, actor, (job, *more), {}, {}))
            self.sent.setdefault(actor, []).append(job)

    def ran(self) -> list[tuple[str, str]]:
        """(job, the release it ran in) a body."""
        with self.database.connect() as connection:
            return [(job, release) for job, release in connection.execute(text("SELECT job, release FROM ran"))]

    def where(self, actor: str) -> set[str]:
        return {release for job, release in self.ran() if job in self.sent[actor]}

    def until_ran(self, actor: str) -> None:
        wait_until(lambda: {job for job, _ in self.ran()} >= set(self.sent[actor]), 45)

    def fired(self, entry: str) -> set[str]:
        """The ids of the messages that the ledger says were sent for an entry."""
        lines = ledger.read(self.broker.client, self.broker.namespace, entry)
        return {f"{entry}@{wire.to_ms(line.first)}" for line in lines if line.verdict == "fired"}

    def left_over(self) -> tuple[int, dict[bytes, bytes]]:
        """How many messages are anywhere in the queue, and the dead letters."""
        ns, client = self.broker.namespace, self.broker.client
        dead: dict[bytes, bytes] = client.hgetall(keys.dead_details(ns, QUEUE))
        return int(client.hlen(keys.bodies(ns, QUEUE))), dead

    def was_left(self, actor: str) -> int:
        """Of how many messages that wait the old release said that it cannot run them."""
        bodies = self.broker.client.hvals(keys.bodies(self.broker.namespace, QUEUE))
        found = [json.loads(body) for body in bodies]
        return sum(one["actor_name"] == actor and wire.LEFT in one["options"] for one in found)


@pytest.fixture
def roll(tmp_path: Path, redis_url: str, namespace: str, database_url: str) -> Iterator[Roll]:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": child_path(ROOT),
        "FLEET_REDIS_URL": redis_url,
        "FLEET_DATABASE_URL": database_url,
        "FLEET_NAMESPACE": namespace,
        "FLEET_LOG_FORMAT": "json",
    }
    broker = FleetBroker(url=redis_url, namespace=namespace, middleware=[])
    made = Roll(tmp_path, environment, broker, create_engine(psycopg_url(database_url)))
    yield made
    for process in made.processes.values():
        process.kill()
        process.wait()
    made.database.dispose()
    broker.client.close()


@pytest.mark.timeout(240)
def test_two_releases_side_by_side_lose_nothing_double_nothing_and_know_every_actor(roll: Roll) -> None:
    assert roll.fleet(roll.old, "migrate").returncode == 0
    roll.start(roll.old, "work", "main")
    roll.start(roll.old, "beat")
    for actor in ("steady", "charge", "going"):
        roll.send(actor, 20)
    wait_until(lambda: roll.fired("tick"), 30)
    _producers_are_ahead_of_the_workers(roll)
    _the_new_release_comes(roll)
    _what_is_gone_is_let_run_out(roll)
    roll.end("old beat")
    roll.end("old work")
    before = roll.fired("tick_of_the_new")
    roll.send("charge", 20, "USD")
    wait_until(lambda: len(roll.fired("tick_of_the_new") - before) >= 2, 30)
    roll.end("new beat")
    _everything_ran_once(roll)
    roll.end("new work")


def _producers_are_ahead_of_the_workers(roll: Roll) -> None:
    """What only the new release can run comes while there is none: the old one leaves it."""
    roll.send("added", 5)
    roll.send("charge", 5, "CHF")
    wait_until(lambda: (roll.was_left("added"), roll.was_left("charge")) == (5, 5), 30)


def _the_new_release_comes(roll: Roll) -> None:
    """As the page says: looked at, migrated, then beside the old one, which goes on."""
    (roll.folder / "running.json").write_text(roll.fleet(roll.old, "manifest").stdout)
    judged = roll.fleet(roll.new, "check", "--against", str(roll.folder / "running.json"))
    assert judged.stderr.startswith("fleet: Actor 'going' (queue 'work') is gone") and judged.stderr.count("\n") == 1
    assert roll.fleet(roll.new, "migrate").returncode == 0
    roll.start(roll.new, "work", "main")
    roll.start(roll.new, "beat")
    roll.until_ran("added")
    assert roll.where("added") == {"new"}
    for _ in range(10):
        for actor, more in (("steady", ()), ("charge", ()), ("charge", ("CHF",)), ("added", ()), ("going", ())):
            roll.send(actor, 4, *more)


def _what_is_gone_is_let_run_out(roll: Roll) -> None:
    """The new release leaves messages of the actor that is gone to the old one, which is let go when none is left."""
    roll.until_ran("going")

    def none_left() -> bool:
        against = ("check", "--against", str(roll.folder / "running.json"), "--look")
        return roll.fleet(roll.new, *against).returncode == 0

    wait_until(none_left, 30)
    assert roll.where("going") == {"old"}
    assert roll.where("steady") == {"old", "new"}, "both served the queue"


def _everything_ran_once(roll: Roll) -> None:
    slots = roll.fired("tick") | roll.fired("tick_of_the_new")
    wanted = {job for jobs in roll.sent.values() for job in jobs} | slots
    wait_until(lambda: {job for job, _ in roll.ran()} >= wanted, 45)
    assert Counter(job for job, _ in roll.ran()) == Counter(wanted), "each once, and nothing that nobody sent"
    wait_until(lambda: roll.left_over() == (0, {}))
    with roll.database.connect() as connection:
        francs = connection.scalar(text("SELECT count(*) FROM ran WHERE currency = 'CHF' AND release = 'new'"))
    assert francs == 45, "none lost its argument to the release that does not take it"
