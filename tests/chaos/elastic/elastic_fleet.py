"""Beats and a lane as real processes on a fast night, a backlog in files, and what is judged of both."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import psutil
import redis

from fleet.allowance import Decision, decisions
from fleet.broker import FleetBroker, keys
from fleet.clock import Night, clock, environment
from tests.waiting import wait_until

APP = Path(__file__).parent / "app"
ROOT = Path(__file__).parents[3]
NIGHT = datetime(2026, 11, 30, tzinfo=UTC)
RATE = 120.0  # a night minute is half a second


class ElasticFleet:
    """Starts at a time of the night; rows take so many real seconds each."""

    def __init__(self, folder: Path, redis_url: str, namespace: str, *, rows: int, seconds: float = 0.02) -> None:
        self._folder, self.rows, self.namespace = folder, folder / "rows", namespace
        for name in ("left", "claimed", "done"):
            (self.rows / name).mkdir(parents=True)
        for number in range(rows):
            (self.rows / "left" / f"{number:05}").touch()
        (self.rows / "seconds").write_text(str(seconds))
        self.count = rows
        self._url = redis_url
        self.client = redis.Redis.from_url(redis_url)
        self.broker = FleetBroker(url=redis_url, namespace=namespace)
        self._started: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.beats: list[subprocess.Popen[bytes]] = []

    def begin(self, hour: float, *, beats: int = 1, lane: bool = True) -> None:
        """Play the night from an hour on."""
        clock.set_night(Night(NIGHT + timedelta(hours=hour), clock.real_now(), RATE))
        self.beats = [self.start("beat") for _ in range(beats)]
        if lane:
            self.start("work", "jobs")

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        assert clock._night is not None
        log = self._folder / f"{command[0]}-{len(self._started)}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "fleet", "--app", str(APP), *command],
                env={
                    **{name: value for name, value in os.environ.items() if not name.startswith("FLEET_")},
                    **environment(clock._night),
                    "FLEET_REDIS_URL": self._url,
                    "FLEET_NAMESPACE": self.namespace,
                    "FLEET_LEADER_TTL": "PT2S",
                    "FLEET_LEADER_RENEWAL": "PT0.5S",
                    "FLEET_LOST_AFTER": "PT3S",
                    "FLEET_LOG_FORMAT": "json",
                    "TEST_ROWS": str(self.rows),
                    "PYTHONPATH": str(ROOT),
                },
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        self._started.append((process, log))
        return process

    def end(self) -> None:
        (self.rows / "hang").unlink(missing_ok=True)
        for process, _ in self._started:
            process.terminate()
        for process, _ in self._started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
        clock.set_night(None)

    def leader(self) -> subprocess.Popen[bytes]:
        """The beat that leads."""
        token = (self.client.get(keys.leader(self.namespace)) or b"?").decode()
        return next(process for process, log in self._started if process in self.beats and token in log.read_text())

    def children(self) -> list[psutil.Process]:
        """The lane's worker processes."""
        found = []
        for process, _ in self._started:
            with suppress(psutil.NoSuchProcess):
                found += [
                    one for one in psutil.Process(process.pid).children() if "fleet.workers.child" in one.cmdline()
                ]
        return found

    def until(self, hour: float) -> None:
        """Wait for a time of the night."""
        wait_until(lambda: clock.now() >= NIGHT + timedelta(hours=hour), 60)

    def done(self) -> int:
        return len(list((self.rows / "done").iterdir()))

    def until_done(self, seconds: float = 60) -> None:
        """Wait until every row is done; none may be lost."""
        wait_until(lambda: self.done() == self.count, seconds)

    def reasons(self) -> list[str]:
        return [decision.reason for decision in self.decided()]

    def decided(self) -> list[Decision]:
        return decisions(self.broker, "sort", NIGHT)

    def ticks(self) -> int:
        """How many slots of the other entry fired."""
        found = self.client.xrange(keys.ledger(self.namespace, "tick"))
        return sum(fields[b"verdict"] == b"fired" for _, fields in found)

    def logged(self, event: str) -> int:
        return sum(log.read_text().count(f'"event": "{event}"') for _, log in self._started)

    def chunks(self) -> Iterator[tuple[int, int, float, float]]:
        """Each chunk that began: number, process, begin, end; one that has no end was cut off, or runs."""
        open_since: dict[int, tuple[int, float]] = {}
        for line in (self.rows / "journal").read_text().splitlines():
            event, number, pid, at = line.split()
            if event == "begin":
                if int(pid) in open_since:
                    yield open_since[int(pid)][0], int(pid), open_since[int(pid)][1], float("inf")
                open_since[int(pid)] = (int(number), float(at))
            else:
                begun = open_since.pop(int(pid))
                yield begun[0], int(pid), begun[1], float(at)
        for pid, (number, at) in open_since.items():
            yield number, pid, at, float("inf")

    def judge(self, killed: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        """No chain was two at any instant, none ran beyond the cap, and no chunk was cut but by the test."""
        of_chain: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for number, pid, began, ended in self.chunks():
            if pid in killed and ended == float("inf"):
                continue
            assert ended < float("inf"), f"a chunk of chain {number} in process {pid} has no end"
            of_chain[number].append((began, ended))
        assert set(of_chain) <= set(range(4)), set(of_chain)
        for number, spans in of_chain.items():
            spans.sort()
            for (_, ended), (began, _) in pairwise(spans):
                assert ended <= began, f"chain {number} was two at {began}"
