"""The supervisor of a lane: starts its children, restarts one that died (never the others), drains on SIGTERM.

A child that dies within its first 5 s is restarted with a growing pause, up to 30 s, so that a lane which cannot start
does not burn the machine. `/metrics` sums the children's metrics, on loopback unless told otherwise.

When a child ended it is reaped at once: what it held returns to the front of its queues. Not guaranteed yet: that a
hung child is noticed. A child that was fenced meanwhile goes on under another id, and is reaped by its silence.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import redis

from fleet import metrics
from fleet.app import process_broker, settings
from fleet.declarations import Lane
from fleet.logs import get_logger
from fleet.servers import require_broker
from fleet.workers.presence import Presence, Report

log = get_logger(__name__)

_YOUNG_SECONDS = 5.0
_LONGEST_PAUSE = 30.0
_POLL_SECONDS = 0.1
_PAST_DRAIN = 10.0  # seconds a child gets beyond its drain to hand back what it holds


@dataclass
class _Child:
    """A place in the lane: its process, when it started, and how often it died young in a row."""

    process: subprocess.Popen[bytes]
    worker_id: str
    started: float
    young_deaths: int = 0


class Supervisor:
    """Runs one lane of an application, in the foreground."""

    def __init__(self, root: Path, lane: Lane) -> None:
        self._root, self._lane = root, lane
        self._stop = threading.Event()
        self._metrics_dir = tempfile.mkdtemp(prefix="fleet-metrics-")
        self._children: list[_Child] = []
        self._restarts: list[tuple[float, int]] = []  # (instant, young deaths) of places that wait for a new child

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT; a second signal ends the children at once.

        Raises `ServerUnreachable`, `ServerTooOld` or `ServerRefused` if Redis cannot be used at the start.
        """
        broker = process_broker()
        require_broker(broker)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        where = self._serve_metrics()
        presence = Presence(
            broker.client, broker.namespace, lambda: Report("supervisor", self._lane.name, metrics=where)
        )
        presence.start()
        log.info("lane_started", lane=self._lane.name, processes=self._lane.processes, metrics=where)
        try:
            for _ in range(self._lane.processes):
                self._start(0)
            while not self._stop.wait(_POLL_SECONDS):
                self._replace_dead()
            self._drain()
        finally:
            presence.stop()
            shutil.rmtree(self._metrics_dir, ignore_errors=True)
        log.info("lane_ended", lane=self._lane.name)

    def _on_signal(self, *_: object) -> None:
        if self._stop.is_set():
            for child in self._children:
                child.process.kill()
        self._stop.set()

    def _start(self, young_deaths: int) -> None:
        worker_id = str(uuid.uuid4())
        process = subprocess.Popen(
            [sys.executable, "-m", "fleet.workers.child", "--app", str(self._root), self._lane.name, worker_id],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a signal to the terminal's group reaches the supervisor alone
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": self._metrics_dir},
        )
        self._children.append(_Child(process, worker_id, time.monotonic(), young_deaths))

    def _replace_dead(self) -> None:
        now = time.monotonic()
        for child in [child for child in self._children if child.process.poll() is not None]:
            self._children.remove(child)
            self._forget_metrics(child.process.pid)
            self._return_messages(child.worker_id)
            young = child.young_deaths + 1 if now - child.started < _YOUNG_SECONDS else 0
            pause = _pause(young)
            self._restarts.append((now + pause, young))
            log.error(
                "worker_died",
                lane=self._lane.name,
                pid=child.process.pid,
                cause=_cause(child.process.returncode),
                restart_in=pause,
            )
        for due, young in [restart for restart in self._restarts if restart[0] <= now]:
            self._restarts.remove((due, young))
            self._start(young)

    def _return_messages(self, worker_id: str) -> None:
        try:
            process_broker().presume_dead(worker_id, self._lane.queues)
        except redis.RedisError as error:
            log.warning(
                "worker_not_presumed_dead", lane=self._lane.name, error=str(error), returns_in="30s, by another worker"
            )

    def _drain(self) -> None:
        log.info("lane_draining", lane=self._lane.name, drain=str(self._lane.drain))
        for child in self._children:
            child.process.terminate()
        ends = time.monotonic() + self._lane.drain.total_seconds() + _PAST_DRAIN
        for child in self._children:
            try:
                child.process.wait(max(0.1, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.error(
                    "worker_killed", lane=self._lane.name, pid=child.process.pid, cause="did not end in its drain"
                )
                child.process.kill()
                child.process.wait()
            # What a job left running past its drain still holds must not wait for a reaper.
            self._return_messages(child.worker_id)

    def _serve_metrics(self) -> str:
        from prometheus_client import CollectorRegistry
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=self._metrics_dir)  # type: ignore[no-untyped-call]
        return metrics.serve(settings().metrics_host, registry)

    def _forget_metrics(self, pid: int) -> None:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(pid, path=self._metrics_dir)  # type: ignore[no-untyped-call]


def _pause(young_deaths: int) -> float:
    """Seconds before the next start: 0, 1, 2, 4 … up to the longest, however many deaths there were."""
    return min(_LONGEST_PAUSE, 2.0 ** min(young_deaths - 1, 10)) if young_deaths else 0.0


def _cause(returncode: int) -> str:
    return f"signal {signal.Signals(-returncode).name}" if returncode < 0 else f"exit code {returncode}"
