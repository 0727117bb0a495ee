"""Two replicas as real processes, and what they do when one is killed, one is stopped, and Redis goes away."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from dramatiq import Message

from fleet import embedded, wire
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

    def __init__(self, root: Path, redis_url: str, namespace: str, schedule: str = SCHEDULE) -> None:
        self._root, self._namespace = root, namespace
        self.client = redis.Redis.from_url(redis_url)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FLEET_")},
            "FLEET_REDIS_URL": redis_url,
            "FLEET_NAMESPACE": namespace,
            "FLEET_LEADER_TTL": "PT2S",
            "FLEET_LEADER_RENEWAL": "PT0.5S",
            "FLEET_LOG_FORMAT": "json",
            "PYTHONPATH": child_path(ROOT),
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
                    env=self._environment,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    cwd=self._root,
                )
            self.replicas.append(Replica(process, log))

    def leader_and_follower(self) -> tuple[Replica, Replica]:
        first, second = self.replicas
        wait_until(lambda: first.token and second.token and self.client.get(keys.leader(self._namespace)), 30)
        leads = (self.client.get(keys.leader(self._namespace)) or b"").decode()
        return (first, second) if first.token == leads else (second, first)

    def lines(self, token: str | None = None) -> list[dict[str, str]]:
        found = self.client.xrange(keys.ledger(self._namespace, "tick"))
        lines = [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in found]
        return [line for line in lines if line["verdict"] != "new" and token in (None, line["token"])]

    def fired(self, token: str) -> int:
        return sum(line["verdict"] == "fired" for line in self.lines(token))

    def require_one_verdict_a_slot_and_one_message_a_fired_slot(self) -> None:
        judged = [slot for line in self.lines() for slot in range(int(line["from"]), int(line["to"]) + 1, 1000)]
        assert judged == list(range(judged[0], judged[-1] + 1, 1000)), "a slot without a verdict, or with two"
        fired = [int(line["from"]) for line in self.lines() if line["verdict"] == "fired"]
        bodies = self.client.hvals(keys.bodies(self._namespace, "ticks"))
        assert sorted(Message.decode(body).options[wire.SLOT] for body in bodies) == fired
        assert self.client.llen(keys.queue(self._namespace, "ticks")) == len(fired)

    def freeze(self) -> None:
        """Kill every replica, so that what they left can be counted."""
        for replica in self.replicas:
            if replica.process.poll() is None:
                replica.process.kill()
            replica.process.wait()

    def stop(self) -> None:
        self.freeze()
        self.client.close()


@pytest.fixture
def beats(tmp_path: Path, redis_url: str, namespace: str) -> Iterator[Beats]:
    made = Beats(tmp_path, redis_url, namespace)
    yield made
    made.stop()


def seconds_until(condition: Callable[[], object], limit: float) -> float:
    started = time.monotonic()
    wait_until(condition, limit)
    return time.monotonic() - started


def test_a_killed_leader_is_followed_within_its_term_and_two_seconds_and_no_slot_fires_twice(beats: Beats) -> None:
    beats.start(2)
    leader, follower = beats.leader_and_follower()
    wait_until(lambda: beats.fired(leader.token) >= 2)
    leader.process.send_signal(signal.SIGKILL)
    took = seconds_until(lambda: beats.fired(follower.token), 15)
    assert took <= (TTL + timedelta(seconds=2)).total_seconds()
    wait_until(lambda: beats.fired(follower.token) >= 2)
    follower.process.send_signal(signal.SIGKILL)
    follower.process.wait()
    beats.require_one_verdict_a_slot_and_one_message_a_fired_slot()
    assert {line["epoch"] for line in beats.lines(leader.token)} == {"1"}
    assert {line["epoch"] for line in beats.lines(follower.token)} == {"2"}


def test_a_stopped_leader_hands_over_within_a_second_and_exits_clean(beats: Beats) -> None:
    beats.start(2)
    leader, follower = beats.leader_and_follower()
    leader.process.terminate()
    took = seconds_until(lambda: beats.client.get(keys.leader(beats._namespace)) == follower.token.encode(), 10)
    assert took < 1
    assert leader.process.wait(10) == 0
    wait_until(lambda: beats.fired(follower.token) >= 2)
    follower.process.terminate()
    assert follower.process.wait(10) == 0
    assert beats.client.get(keys.leader(beats._namespace)) is None, "the last one left the lock behind"
    beats.require_one_verdict_a_slot_and_one_message_a_fired_slot()


def test_a_leader_that_was_suspended_past_its_term_fires_nothing_when_it_wakes(beats: Beats) -> None:
    beats.start(2)
    leader, follower = beats.leader_and_follower()
    wait_until(lambda: beats.fired(leader.token))
    leader.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: beats.fired(follower.token) >= 2)
    before = len(beats.lines(leader.token))
    leader.process.send_signal(signal.SIGCONT)
    wait_until(lambda: any(event["event"] == "beat_deposed" for event in leader.events()))
    wait_until(lambda: beats.fired(follower.token) >= 4)
    assert len(beats.lines(leader.token)) == before
    assert leader.process.poll() is None
    beats.freeze()
    beats.require_one_verdict_a_slot_and_one_message_a_fired_slot()


def test_replicas_outlive_a_redis_that_goes_away_and_fire_again_when_it_is_back(tmp_path: Path) -> None:
    with embedded.servers(tmp_path / "servers", embedded.Wanted(postgres=False)) as urls:
        beats = Beats(tmp_path, urls.redis_url, "away")
        try:
            beats.start(2)
            beats.leader_and_follower()
            wait_until(lambda: len(beats.lines()) >= 2)
            server = int(beats.client.info("server")["process_id"])
            os.kill(server, signal.SIGSTOP)
            try:
                time.sleep(4)  # the outage itself: two terms long
            finally:
                os.kill(server, signal.SIGCONT)
            tokens = [replica.token for replica in beats.replicas]
            before = sum(beats.fired(token) for token in tokens)
            took = seconds_until(lambda: sum(beats.fired(token) for token in tokens) >= before + 2, 20)
            assert took <= (TTL + timedelta(seconds=4)).total_seconds()
            assert [replica.process.poll() for replica in beats.replicas] == [None, None]
            beats.require_one_verdict_a_slot_and_one_message_a_fired_slot()
        finally:
            beats.stop()


def test_a_beat_answers_probes_at_the_port_it_was_given_and_refuses_one_that_is_taken(beats: Beats) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    beats._environment["FLEET_METRICS_PORT"] = str(port)

    def answers() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                return str(answer.read(), "utf-8")
        except OSError:
            return ""

    beats.start(1)
    wait_until(lambda: answers() == "ok\n", 30)
    beats.start(1)
    assert beats.replicas[1].process.wait(30) == 2
    said = beats.replicas[1].log.read_text()
    assert f"fleet: Nothing can listen on '127.0.0.1', port {port}" in said and "Traceback" not in said


DYING_ALARM = """
import os
from pathlib import Path
from beat import alarm

whole = alarm.next_slot

def dying(entry, after):
    if Path(__file__).with_name(f"die-{os.getpid()}").exists():
        raise SystemExit  # nothing catches it: the thread that rings ends
    return whole(entry, after)

alarm.next_slot = dying
"""
WALL_CLOCK_BY_HAND = """
from datetime import UTC, datetime
from pathlib import Path
import apscheduler.schedulers.base as scheduler
from fleet.clock import Clock

hand = Path(__file__).with_name("wall")

def wall(*_):
    return datetime.now(UTC) + timedelta(seconds=float(hand.read_text()))

class Hands:
    now = staticmethod(wall)

Clock.real_now, scheduler.datetime = wall, Hands
"""


def page(replica: Replica, name: str) -> tuple[int, str]:
    """Status and text of a probe's page."""
    where = next(event["metrics"] for event in replica.events() if event["event"] == "beat_started")
    try:
        with urllib.request.urlopen(where.replace("/metrics", name), timeout=5) as answer:
            return answer.status, str(answer.read(), "utf-8")
    except urllib.error.HTTPError as error:
        return error.code, str(error.read(), "utf-8")


def test_a_replica_whose_alarm_clock_died_is_unready_within_ten_seconds_and_hands_over(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    beats = Beats(tmp_path, redis_url, namespace, SCHEDULE + DYING_ALARM)
    try:
        beats.start(2)
        leader, follower = beats.leader_and_follower()
        wait_until(lambda: beats.fired(leader.token) and page(leader, "/readyz")[0] == 200)
        (tmp_path / "config" / f"die-{leader.process.pid}").touch()
        took = seconds_until(lambda: page(leader, "/readyz")[0] == 503, 15)
        assert took < 10
        assert page(leader, "/healthz")[0] == 503
        assert "its thread died or hangs" in page(leader, "/healthz")[1]
        wait_until(lambda: beats.fired(follower.token) >= 2, 5)
        before = len(beats.lines(leader.token))
        wait_until(lambda: beats.fired(follower.token) >= 4)
        assert len(beats.lines(leader.token)) == before
        assert leader.process.poll() is None, "nothing makes it exit"
        assert page(follower, "/healthz") == (200, "ok\n")
        beats.freeze()
        beats.require_one_verdict_a_slot_and_one_message_a_fired_slot()
    finally:
        beats.stop()


def test_a_wall_clock_that_jumps_an_hour_or_to_2200_and_back_neither_bursts_nor_goes_silent(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    schedule = SCHEDULE.replace("expires=second", "expires=9 * second") + WALL_CLOCK_BY_HAND
    beats = Beats(tmp_path, redis_url, namespace, schedule)
    hand = tmp_path / "config" / "wall"
    hand.write_text("0")
    try:
        beats.start(1)
        (leader,) = beats.replicas
        wait_until(lambda: leader.token and beats.fired(leader.token) >= 2, 30)
        started, before = time.monotonic(), beats.fired(leader.token)
        for by in (3600, 0, -3600, 0, 174 * 365 * 86_400, 0):
            (tmp_path / "config" / "next").write_text(str(by))
            (tmp_path / "config" / "next").replace(hand)
            fired = beats.fired(leader.token)
            wait_until(lambda fired=fired: beats.fired(leader.token) >= fired + 3, 5)
        elapsed, fired = time.monotonic() - started, beats.fired(leader.token) - before
        assert fired <= elapsed + 2, "a burst"
        said = [event["by"] for event in leader.events() if event["event"] == "wall_clock_jumped"]
        assert said == ["1:00:00", "-1:00:00", "-1:00:00", "1:00:00", "63510 days, 0:00:00", "-63510 days, 0:00:00"]
        beats.freeze()
        assert {line["verdict"] for line in beats.lines()} == {"fired"}
        beats.require_one_verdict_a_slot_and_one_message_a_fired_slot()
    finally:
        beats.stop()


def test_an_entry_that_names_no_actor_is_refused_at_the_start_not_at_its_first_slot(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    beats = Beats(tmp_path, redis_url, namespace, SCHEDULE.replace('"tick"', '"tik"'))
    try:
        beats.start(1)
        (replica,) = beats.replicas
        assert replica.process.wait(30) == 2
        assert "There is no actor named 'tik'. Did you mean 'tick'?" in replica.log.read_text()
        assert beats.client.get(keys.leader(namespace)) is None
    finally:
        beats.stop()
