"""What a soak counts over time, and how fast it grows an hour.

Samples are taken while nights are played; of each night the medians are kept, so that the night's own tide does not
look like growth. A slope is that of a straight line through the medians, the first night, in which everything is
loaded, left out: of fewer than three nights, or of less than twenty minutes, there is none. Figures that a bound is
stated for are judged, the others are said: rows grow with the work that is done.

Not guaranteed: that a figure of a kind is of the same processes from sample to sample; faults replace them, each roll
all of them. So what one process gathers over hours is not seen here.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import redis
from sqlalchemy import text

from fleet.broker import keys
from fleet.storage import database
from tests.soak.processes import Stage

Verdict = Literal["ok", "red", "not decided"]
MIB = 2**20
FEWEST_NIGHTS, LEAST_HOURS = 3, 1 / 3
BOUNDS = {
    "RSS, MiB": 24.0,  # of one process of a kind: far under a lane's max_rss in a day, above the noise of an hour
    "open files": 6.0,
    "threads": 4.0,
    "keys without expiry": 12.0,
    "keys in all": 600.0,  # an hour's tombstones of killed processes stand a day
    "shared memory, files": 20.0,
}
"""Family of figures -> the most it may grow an hour."""
_OWN = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{12,}|\d{4,}|@.*")
_PART = re.compile(r"\w+")


@dataclass(frozen=True)
class Slope:
    """A figure: its medians of the first judged and the last night, and its growth an hour, where there is one.

    `error` is the standard error of the growth.
    """

    family: str
    kind: str
    first: float
    last: float
    an_hour: float | None
    error: float = 0.0

    @property
    def bound(self) -> float | None:
        return BOUNDS.get(self.family)

    @property
    def verdict(self) -> Verdict | None:
        """`red` is what is beyond its bound with two errors taken off, `not decided` what is beyond it without.

        Of processes that faults replace all the time a few nights are no proof, neither of growth nor of none. None
        where there is no bound, or no slope.
        """
        if self.bound is None or self.an_hour is None:
            return None
        if self.an_hour <= self.bound:
            return "ok"
        return "red" if self.an_hour - 2 * self.error > self.bound else "not decided"

    def __str__(self) -> str:
        return f"{self.family} of {self.kind}"


class Growth:
    """Samples of a stage, a list a night."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._nights: list[tuple[float, dict[tuple[str, str], list[float]]]] = []

    def night(self, at_hours: float) -> None:
        """A night begins, so many real hours after the first."""
        self._nights.append((at_hours, defaultdict(list)))

    def look(self) -> None:
        """Take a sample; raises what the servers raise while they are away."""
        found = [*self._of_processes(), *self._of_redis(), *self._of_postgres(), self._of_shared_memory()]
        for family, kind, value in found:
            self._nights[-1][1][family, kind].append(value)

    def slopes(self) -> list[Slope]:
        """Every figure that was seen."""
        medians: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        nights = self._nights[1:] or self._nights
        for hours, samples in nights:
            for key, values in samples.items():
                medians[key].append((hours, statistics.median(values)))
        return [
            Slope(family, kind, points[0][1], points[-1][1], *slope(points))
            for (family, kind), points in sorted(medians.items())
        ]

    def _of_processes(self) -> Iterator[tuple[str, str, float]]:
        seen: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for name, pid in self._stage.hosts.pids().items():
            try:
                top = psutil.Process(pid)
                for process in (top, *top.children(recursive=True)):
                    with process.oneshot():
                        seen[_kind(name, process, top)].append(
                            (process.memory_info().rss / MIB, process.num_fds(), process.num_threads())
                        )
            except psutil.Error:
                continue
        for kind, figures in seen.items():
            for family, values in zip(("RSS, MiB", "open files", "threads"), zip(*figures, strict=True), strict=True):
                yield family, kind, statistics.mean(values)

    def _of_redis(self) -> Iterator[tuple[str, str, float]]:
        broker = self._stage.broker
        client: Any = broker.client
        names = list(client.scan_iter(f"{broker.namespace}:*", count=1000))
        with client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.pttl(name)
            lives = pipe.execute()
        app = self._stage.hosts.app
        declared = {queue for lane in app.lanes for queue in lane.queues} | {entry.name for entry in app.schedule}
        stands = Counter(
            key_kind(name.decode(), broker.namespace, declared)
            for name, life in zip(names, lives, strict=True)
            if life == -1
        )
        yield from (("keys without expiry", kind, float(count)) for kind, count in stands.items())
        yield "keys in all", "all", float(len(names))
        yield "Redis, MiB", "used", client.info("memory")["used_memory"] / MIB
        yield from self._in_permanent_keys(client, broker.namespace)

    def _in_permanent_keys(self, client: redis.Redis, namespace: str) -> Iterator[tuple[str, str, float]]:
        sizes: Any = {b"hash": client.hlen, b"zset": client.zcard, b"set": client.scard, b"stream": client.xlen}
        for key in (made(namespace) for made in keys.PERMANENT):
            kind: Any = client.type(key)
            if kind in sizes:
                yield "entries of a key", key.removeprefix(f"{namespace}:"), float(sizes[kind](key))

    def _of_postgres(self) -> Iterator[tuple[str, str, float]]:
        ask = text("SELECT relname, n_live_tup, pg_total_relation_size(relid) FROM pg_stat_user_tables")
        with database().connect() as connection:
            for table, rows, size in connection.execute(ask):
                yield "rows", table, float(rows)
                yield "table, MiB", table, size / MIB

    def _of_shared_memory(self) -> tuple[str, str, float]:
        """The files of boards that stand there: of this machine, whoever's."""
        return "shared memory, files", "boards", float(sum(1 for _ in Path("/dev/shm").glob("fleet-boards-*/*")))


def slope(points: list[tuple[float, float]]) -> tuple[float | None, float]:
    """The growth an hour of a straight line through (hours, figure), None of too few, and its standard error."""
    if len(points) < FEWEST_NIGHTS or points[-1][0] - points[0][0] < LEAST_HOURS:
        return None, 0.0
    hours, figures = zip(*points, strict=True)
    line = statistics.linear_regression(hours, figures)
    left = sum((figure - line.intercept - line.slope * hour) ** 2 for hour, figure in points)
    spread = sum((hour - statistics.mean(hours)) ** 2 for hour in hours)
    return line.slope, math.sqrt(left / (len(points) - 2) / spread)


def _kind(name: str, process: psutil.Process, top: psutil.Process) -> str:
    if process.pid == top.pid:
        return "beat" if name.startswith("beat") else f"supervisor of {name.removeprefix('lane-')}"
    told = " ".join(process.cmdline())
    if "fleet.workers.spare" in told:
        return "spare" if process.ppid() == top.pid else "runner of suspects"
    return f"worker of {name.removeprefix('lane-')}" if "fleet.workers.child" in told else "other"


def key_kind(name: str, namespace: str, declared: Collection[str]) -> str:
    """A key's name without what is one worker's, one message's, one queue's or one entry's."""
    told = _OWN.sub("*", name.removeprefix(f"{namespace}:"))
    return _PART.sub(lambda part: "*" if part[0] in declared else part[0], told)
