"""What each process of a fleet is and runs now, kept in Redis for `fleet status` and the live view.

A process reports every second, for itself or (a supervisor) for its children too, which so are seen while they hold the
GIL; a report older than 10 s, by the server's clock, is gone. Not guaranteed: that what is listed is still alive, nor
that a job listed still runs. It is a view, nothing decides by it.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

import redis

from fleet.broker import keys
from fleet.clock import clock
from fleet.errors import NotServedHere
from fleet.logs import get_logger
from fleet.workers.board import Board, ChildPhase, Phase, Slot

log = get_logger(__name__)

_REPORT_SECONDS = 1.0
_GONE_MS = 10_000


DRAINING = "draining"  # what a supervisor says of itself once it was told to end


@dataclass(frozen=True)
class Job:
    """A job that runs now; `since` is real time. `phase` is the board's, in small letters."""

    message_id: str
    actor: str
    since: datetime
    queue: str = ""
    phase: str = ""
    soft: timedelta | None = None
    hard: timedelta | None = None


@dataclass(frozen=True)
class Report:
    """What a process says of itself, or its supervisor of it.

    `kind` is `supervisor`, `worker` or `beat`; `leads`, `term` and `leads_since` (real time) hold for a beat, the
    last two while it leads; `phase` is a child's, in small letters, or `draining` of a supervisor. `payload_keys` are
    `fleet.payloads.fingerprints`, None of who does not tell.
    """

    kind: str
    name: str
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)
    worker_id: str | None = None
    metrics: str | None = None
    leads: bool = False
    jobs: tuple[Job, ...] = ()
    phase: str = ""
    term: int = 0
    leads_since: datetime | None = None
    payload_keys: tuple[str, ...] | None = None

    @property
    def serves(self) -> bool:
        """Whether it is a worker that takes messages; one that does not tell its phase is taken for one."""
        return self.kind == "worker" and self.phase in ("", _name(ChildPhase.SERVING))


def report_of_child(lane: str, pid: int, board: Board, now: float) -> Report:
    """What a child's board says of it; `now` by `clock.monotonic()`. Raises `BoardUnreadable`."""
    phase, jobs = _name(board.phase_of_child), jobs_of(board.read_all(), now)
    return Report("worker", lane, pid=pid, worker_id=board.worker_id or None, phase=phase, jobs=jobs)


def jobs_of(slots: Iterable[Slot], now: float) -> tuple[Job, ...]:
    """The jobs that slots of a board hold, longest first; `now` by `clock.monotonic()`, read after them."""
    real_now = clock.real_now()
    jobs = (_job(slot, now, real_now) for slot in slots if slot.phase is not Phase.IDLE)
    return tuple(sorted(jobs, key=lambda job: job.since))


def _job(slot: Slot, now: float, real_now: datetime) -> Job:
    if slot.id is None and not slot.digest:  # the child spoilt its memory: something is there, and no more is known
        return Job("unreadable", "unreadable", real_now, phase=_name(slot.phase))
    return Job(
        slot.message_id or slot.id or f"digest {slot.digest.hex()}",
        slot.actor,
        real_now - timedelta(seconds=max(0.0, now - slot.started)),
        slot.queue,
        _name(slot.phase),
        _span(slot.soft - slot.started),
        _span(slot.hard - slot.started),
    )


def _span(seconds: float) -> timedelta | None:
    return timedelta(seconds=seconds) if math.isfinite(seconds) else None


def _name(phase: Phase | ChildPhase) -> str:
    return phase.name.lower()


class Presence:
    """Reports for this process, or for several, until stopped; `report` is called every second, from a thread.

    When Redis is away it goes on trying, silently: others say that. A process that is no longer among the reports is
    taken back at once.
    """

    def __init__(self, client: redis.Redis, namespace: str, report: Callable[[], Report | Iterable[Report]]) -> None:
        self._client, self._namespace, self._report = client, namespace, report
        self._id = str(uuid.uuid4())
        self._written: set[str] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="presence", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop reporting and take the reports back."""
        self._stopped.set()
        self._thread.join(_REPORT_SECONDS * 2)
        try:
            self._write({})
        except redis.RedisError as error:
            log.debug("presence_left_behind", error=str(error))  # readers prune it

    def _run(self) -> None:
        while True:
            try:
                given = self._report()
                reports = [given] if isinstance(given, Report) else given
                self._write({f"{self._id}:{report.pid}": report for report in reports})
            except redis.RedisError as error:
                log.debug("presence_not_reported", error=str(error))
            except Exception:  # one bad report must not be the last
                log.exception("presence_broke")
            if self._stopped.wait(_REPORT_SECONDS):
                return

    def _write(self, reports: dict[str, Report]) -> None:
        gone = self._written - reports.keys()
        if not reports and not gone:
            return
        self._written |= reports.keys()  # before it is known whether they were: a reply can be lost
        now = _server_ms(self._client)
        with self._client.pipeline() as pipe:
            for process, report in reports.items():
                pipe.hset(keys.processes(self._namespace), process, json.dumps(asdict(report), default=_encoded))
                pipe.zadd(keys.processes_seen(self._namespace), {process: now})
            if gone:
                pipe.hdel(keys.processes(self._namespace), *gone)
                pipe.zrem(keys.processes_seen(self._namespace), *gone)
            pipe.execute()
        self._written = set(reports)


def _server_ms(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def _encoded(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else str(value)


def present(client: redis.Redis, namespace: str) -> list[Report]:
    """The reports of processes seen in the last 10 s; prunes older ones on the way."""
    seen, stale = keys.processes_seen(namespace), _server_ms(client) - _GONE_MS
    gone = client.zrangebyscore(seen, 0, stale)
    if gone:
        with client.pipeline() as pipe:
            pipe.zrem(seen, *gone)
            pipe.hdel(keys.processes(namespace), *gone)
            pipe.execute()
    reports = client.hgetall(keys.processes(namespace)).values()
    return sorted((_parse(json.loads(raw)) for raw in reports), key=lambda r: (r.kind, r.name, r.pid))


def require_here(client: redis.Redis, namespace: str, name: str) -> None:
    """Raise `NotServedHere` unless a worker of this lane (or a beat, for `beat`) reported from this host lately."""
    host = socket.gethostname()
    here = [report for report in present(client, namespace) if report.name == name and report.host == host]
    if not any(report.serves or report.kind == "beat" for report in here):
        raise NotServedHere(f"No process that serves {name!r} on {host} reported in the last {_GONE_MS // 1000} s.")


def _parse(raw: dict[str, Any]) -> Report:
    jobs = tuple(
        Job(
            **_known(Job, job)
            | {
                "since": datetime.fromisoformat(job["since"]),
                "soft": None if job.get("soft") is None else timedelta(seconds=job["soft"]),
                "hard": None if job.get("hard") is None else timedelta(seconds=job["hard"]),
            }
        )
        for job in raw["jobs"]
    )
    since = raw.get("leads_since")
    leads_since = None if since is None else datetime.fromisoformat(since)
    keys_told = raw.get("payload_keys")
    told = {"payload_keys": None if keys_told is None else tuple(keys_told)}
    return Report(**_known(Report, raw) | {"jobs": jobs, "leads_since": leads_since} | told)


def _known(kind: type[Job | Report], raw: dict[str, Any]) -> dict[str, Any]:
    """What this version knows of a report; during a deploy another version writes too."""
    return {one.name: raw[one.name] for one in fields(kind) if one.name in raw}
