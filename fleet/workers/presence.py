"""What each process of a fleet is and runs now, kept in Redis for `fleet status` and the live view.

A process reports every second under an id of its own; a report older than 10 s, by the server's clock, is gone. Not
guaranteed: that what is listed is still alive, nor that a job listed still runs. It is a view, nothing decides by it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import redis

from fleet.broker import keys
from fleet.clock import clock
from fleet.errors import NotServedHere
from fleet.logs import get_logger

log = get_logger(__name__)

_REPORT_SECONDS = 1.0
_GONE_MS = 10_000


@dataclass(frozen=True)
class Job:
    """A job that runs now; `since` is real time."""

    message_id: str
    actor: str
    since: datetime


@dataclass(frozen=True)
class Report:
    """What a process says of itself. `kind` is `supervisor`, `worker` or `beat`; `leads` holds for a beat."""

    kind: str
    name: str
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)
    worker_id: str | None = None
    metrics: str | None = None
    leads: bool = False
    jobs: tuple[Job, ...] = ()


class Presence:
    """Reports for this process until stopped; when Redis is away it goes on trying, silently: others say that."""

    def __init__(self, client: redis.Redis, namespace: str, report: Callable[[], Report]) -> None:
        self._client, self._namespace, self._report = client, namespace, report
        self._id = str(uuid.uuid4())
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="presence", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop reporting and take the report back."""
        self._stopped.set()
        self._thread.join(_REPORT_SECONDS * 2)
        try:
            with self._client.pipeline() as pipe:
                pipe.hdel(keys.processes(self._namespace), self._id)
                pipe.zrem(keys.processes_seen(self._namespace), self._id)
                pipe.execute()
        except redis.RedisError as error:
            log.debug("presence_left_behind", error=str(error))  # readers prune it

    def _run(self) -> None:
        while True:
            try:
                _write(self._client, self._namespace, self._id, self._report())
            except redis.RedisError as error:
                log.debug("presence_not_reported", error=str(error))
            if self._stopped.wait(_REPORT_SECONDS):
                return


def _server_ms(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def _write(client: redis.Redis, namespace: str, process: str, report: Report) -> None:
    now = _server_ms(client)
    with client.pipeline() as pipe:
        pipe.hset(keys.processes(namespace), process, json.dumps(asdict(report), default=str))
        pipe.zadd(keys.processes_seen(namespace), {process: now})
        pipe.execute()


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
    if not any(r.name == name and r.host == host and r.kind in ("worker", "beat") for r in present(client, namespace)):
        raise NotServedHere(f"No process of {name!r} on {host} reported in the last {_GONE_MS // 1000} s.")


def _parse(raw: dict[str, Any]) -> Report:
    jobs = tuple(Job(job["message_id"], job["actor"], datetime.fromisoformat(job["since"])) for job in raw.pop("jobs"))
    return Report(**raw, jobs=jobs)


class RunningJobs:
    """The jobs that run in this process, noted by the thread that runs each."""

    def __init__(self) -> None:
        self._by_thread: dict[int, Job] = {}

    def started(self, message_id: str, actor: str) -> None:
        self._by_thread[threading.get_ident()] = Job(message_id, actor, clock.real_now())

    def ended(self) -> None:
        self._by_thread.pop(threading.get_ident(), None)

    def now(self) -> tuple[Job, ...]:
        return tuple(sorted(self._by_thread.copy().values(), key=lambda job: job.since))


running_jobs = RunningJobs()
