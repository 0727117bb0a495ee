"""How long no beat fires when the leader goes, counted over many leaders; the figures are printed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from statistics import median

import pytest
import redis

from beat.leader import Leader
from fleet.broker import keys
from fleet.broker.connection import client_from
from tests.beat.replicas import Beats, Replica
from tests.waiting import wait_until

TTL, RENEWAL = 2.0, 0.5  # seconds; the default of 6 and 2 is in `make soak-tests`
STANDING = 6  # replicas; started at once, and those that are gone only when fewer than three are left
ENTRIES = 60
# Spread by jitter, so that a slot is due every few milliseconds: what is measured is the beat and not the schedule.
SCHEDULE = f"""
from datetime import timedelta
from fleet import Entry

second = timedelta(seconds=1)
SCHEDULE = [
    Entry(f"tick{{number}}", actor="tick", every=second, expires=60 * second, jitter=timedelta(seconds=0.99),
          because="the test looks who fired it")
    for number in range({ENTRIES})
]
"""

Say = Callable[[str], None]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Prints a line past the capturing of a passing test's output."""

    def print_now(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}")

    return print_now


class Succession:
    """Three replicas or more, whenever one is to go."""

    def __init__(self, beats: Beats) -> None:
        self._beats, self._client, self._ns = beats, beats.client, beats.namespace

    def complete(self) -> None:
        living = sum(replica.process.poll() is None for replica in self._beats.replicas)
        if living < 3:
            self._beats.start(STANDING - living)
            living = STANDING
        wait_until(lambda: self._client.pubsub_numsub(keys.leader(self._ns))[0][1] == living, 30)
        wait_until(lambda: self._first_fire(self.leader().token) is not None)

    def leader(self) -> Replica:
        def found() -> Replica | None:
            token = (self._client.get(keys.leader(self._ns)) or b"none").decode()
            return next((replica for replica in self._beats.replicas if replica.token == token), None)

        return wait_until(found)

    def gap(self, number: signal.Signals) -> float:
        """Signal the leader; seconds until the first fire of the next one, by the server's clock."""
        leader = self.leader()
        seconds, micros = self._client.time()
        leader.process.send_signal(number)
        wait_until(lambda: self._client.get(keys.leader(self._ns)) not in (None, leader.token.encode()), 30)
        successor = self.leader()
        first = wait_until(lambda: self._first_fire(successor.token))
        leader.process.wait(10)
        return first - (int(seconds) + int(micros) / 1e6)

    def _first_fire(self, token: str) -> float | None:
        with self._client.pipeline(transaction=False) as pipe:
            for entry in range(ENTRIES):
                pipe.xrevrange(keys.ledger(self._ns, f"tick{entry}"), count=20)
            streams = pipe.execute()
        fired = [
            int(id.split(b"-")[0]) / 1000
            for stream in streams
            for id, fields in stream
            if fields[b"verdict"] == b"fired" and fields[b"token"].decode() == token
        ]
        return min(fired, default=None)


@pytest.fixture
def succession(
    tmp_path: Path, redis_url: str, namespace: str, request: pytest.FixtureRequest
) -> Iterator[Callable[[float, float], Succession]]:
    made: list[Beats] = []

    def start(ttl: float, renewal: float) -> Succession:
        terms = {"FLEET_LEADER_TTL": f"{ttl}s", "FLEET_LEADER_RENEWAL": f"{renewal}s"}
        made.append(Beats(tmp_path, redis_url, namespace, SCHEDULE, **terms))
        return Succession(made[0])

    yield start
    for beats in made:
        beats.stop()


def figures(gaps: list[float], what: str) -> tuple[float, str]:
    """The p99 (the longest, of fewer than a hundred), and a line that says all."""
    ordered = sorted(gaps)
    p99 = ordered[min(len(gaps) - 1, int(len(gaps) * 0.99))]
    shown = ", ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in (("p50", median(gaps)), ("p99", p99)))
    line = f"{what}, n={len(gaps)}: {shown}, longest {ordered[-1] * 1000:.0f} ms"
    return p99, line


@pytest.mark.alone
@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", [8, pytest.param(100, marks=pytest.mark.soak)])
def test_sigterm_to_the_first_fire_of_the_next_leader(
    rounds: int, succession: Callable[[float, float], Succession], say: Say
) -> None:
    line_of_succession = succession(6.0, 2.0)
    gaps = []
    for _ in range(rounds):
        line_of_succession.complete()
        gaps.append(line_of_succession.gap(signal.SIGTERM))
    p99, line = figures(gaps, "SIGTERM of the leader to the first fire of the next")
    say(line)
    assert p99 <= 0.2


@pytest.mark.alone
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("rounds", "ttl", "renewal"), [(4, TTL, RENEWAL), pytest.param(100, 6.0, 2.0, marks=pytest.mark.soak)]
)
def test_sigkill_to_the_first_fire_of_the_next_leader(
    rounds: int, ttl: float, renewal: float, succession: Callable[[float, float], Succession], say: Say
) -> None:
    line_of_succession = succession(ttl, renewal)
    gaps = []
    for _ in range(rounds):
        line_of_succession.complete()
        gaps.append(line_of_succession.gap(signal.SIGKILL))
    p99, line = figures(gaps, f"SIGKILL of the leader to the first fire of the next, ttl {ttl:g} s")
    say(line)
    assert p99 <= ttl + 1
    assert max(gaps) >= ttl - renewal - 1, "the term did not stand for what it promises"


@pytest.mark.parametrize("seconds", [9, pytest.param(30, marks=pytest.mark.soak)])
def test_a_lease_is_held_for_more_than_a_term_while_all_other_threads_are_blocked(
    seconds: float, redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    renewal = timedelta(seconds=2)
    leader = Leader(
        client_from(redis_url, answers_within=renewal), namespace, ttl=timedelta(seconds=6), renewal=renewal
    )
    leader.start()
    wait_until(leader.leads)
    released = threading.Event()

    def spin() -> None:
        while not released.is_set():
            sum(range(1000))

    jobs = [threading.Thread(target=released.wait) for _ in range(64)] + [threading.Thread(target=spin)]
    for job in jobs:
        job.start()
    try:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            assert leader.leads()
            assert redis_client.get(keys.leader(namespace)) == leader.token.encode()
            time.sleep(0.1)
        assert leader.epoch == 1
    finally:
        released.set()
        for job in jobs:
            job.join()
        leader.stop()
