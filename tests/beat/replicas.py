"""Replicas of the beat as real processes, and what they leave in Redis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import redis
from dramatiq import Message

from fleet import wire
from fleet.broker import keys
from tests.environment import child_path
from tests.waiting import wait_until

TTL = timedelta(seconds=2)
ROOT = Path(__file__).parent.parent.parent
ACTORS = """
from fleet import queue

@queue("ticks").actor
def tick() -> None: ...
"""
LANES = """
from datetime import timedelta
from fleet import Budget, Lane, Retry

budget = Budget(timedelta(seconds=5), timedelta(seconds=9), because="nobody works this lane in the test")
retry = Retry(attempts=3, first=timedelta(seconds=1), longest=timedelta(minutes=1))
LANES = [Lane("ticks", ["ticks"], waits_for="nobody", processes=1, threads=1, budget=budget, retry=retry)]
"""
SCHEDULE = """
from datetime import timedelta
from fleet import Entry

second = timedelta(seconds=1)
SCHEDULE = [Entry("tick", every=second, expires=second, because="the test counts each second's slot")]
"""


@dataclass
class Replica:
    """A beat process and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def events(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    @property
    def token(self) -> str:
        return str(next((event["token"] for event in self.events() if event["event"] == "beat_started"), ""))


class Beats:
    """The replicas of one application on one Redis, and the ledger they write."""

    def __init__(self, root: Path, redis_url: str, namespace: str, schedule: str = SCHEDULE, **settings: str) -> None:
        self._root, self.namespace = root, namespace
        self.client = redis.Redis.from_url(redis_url)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FLEET_")},
            "FLEET_REDIS_URL": redis_url,
            "FLEET_NAMESPACE": namespace,
            "FLEET_LEADER_TTL": "PT2S",
            "FLEET_LEADER_RENEWAL": "PT0.5S",
            "FLEET_LOG_FORMAT": "json",
            "PYTHONPATH": child_path(ROOT),
            **settings,
        }
        for room, name, text in (
            ("actors", "ticks", ACTORS),
            ("config", "lanes", LANES),
            ("config", "schedule", schedule),
        ):
            (root / room).mkdir(exist_ok=True)
            (root / room / "__init__.py").touch()
            (root / room / f"{name}.py").write_text(text)
        self.replicas: list[Replica] = []

    def start(self, count: int) -> None:
        for _ in range(count):
            log = self._root / f"beat-{len(self.replicas)}.log"
            with log.open("wb") as sink:
                process = subprocess.Popen(
                    [sys.executable, "-m", "fleet", "--app", str(self._root), "beat"],
                    env=self.environment,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    cwd=self._root,
                )
            self.replicas.append(Replica(process, log))

    def leader_and_follower(self) -> tuple[Replica, Replica]:
        first, second = self.replicas
        wait_until(lambda: first.token and second.token and self.client.get(keys.leader(self.namespace)), 30)
        leads = (self.client.get(keys.leader(self.namespace)) or b"").decode()
        return (first, second) if first.token == leads else (second, first)

    def lines(self, token: str | None = None) -> list[dict[str, str]]:
        found = self.client.xrange(keys.ledger(self.namespace, "tick"))
        lines = [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in found]
        return [line for line in lines if line["verdict"] != "new" and token in (None, line["token"])]

    def fired(self, token: str) -> int:
        return sum(line["verdict"] == "fired" for line in self.lines(token))

    def require_one_verdict_a_slot_and_one_message_a_fired_slot(self) -> None:
        judged = [slot for line in self.lines() for slot in range(int(line["from"]), int(line["to"]) + 1, 1000)]
        assert judged == list(range(judged[0], judged[-1] + 1, 1000)), "a slot without a verdict, or with two"
        fired = [int(line["from"]) for line in self.lines() if line["verdict"] == "fired"]
        bodies = self.client.hvals(keys.bodies(self.namespace, "ticks"))
        assert sorted(Message.decode(body).options[wire.SLOT] for body in bodies) == fired
        assert self.client.llen(keys.queue(self.namespace, "ticks")) == len(fired)

    def freeze(self) -> None:
        """Kill every replica, so that what they left can be counted."""
        for replica in self.replicas:
            if replica.process.poll() is None:
                replica.process.kill()
            replica.process.wait()

    def stop(self) -> None:
        self.freeze()
        self.client.close()
