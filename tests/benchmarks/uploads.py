"""What a person just uploaded, while two processes drain a full backlog: from `send` to the start.

A chunk of the backlog is a job of 200 ms, and 300 of them wait; uploads come at random and take 20 ms. Measured for
uploads in the backlog's own queue, in a queue of their own without preference, and in one that is fetched first. Each
process is a worker with one thread and a prefetch of one, as the lane's are. The floor is what is left of two running
chunks: half of them, a third of one on the average. There is no contender.
"""

from __future__ import annotations

import random
import threading
import time
from datetime import timedelta
from statistics import median, quantiles
from typing import Any

import dramatiq

from fleet.broker import FleetBroker
from fleet.workers.worker import FleetWorker
from tests.benchmarks.stage import Stage

_PROCESSES, _CHUNKS, _CHUNK, _UPLOADS, _UPLOAD = 2, 300, 0.2, 60, 0.020


def report(stage: Stage) -> None:
    """Measure, and print the line."""
    said = []
    for how, queue, first in (
        ("in the backlog's queue", "backlog", ()),
        ("in a queue of their own", "uploads", ()),
        ("in one that is fetched first", "uploads", ("uploads",)),
    ):
        waited = _measure(stage, queue, first)
        said.append(f"{how} median {median(waited):.2f} s, p95 {quantiles(waited, n=20)[-1]:.2f} s")
    print(f"uploads until they start, while chunks of {_CHUNK:.1f} s fill two processes: {'; '.join(said)}")


def _measure(stage: Stage, queue: str, first: tuple[str, ...]) -> list[float]:
    waited: list[float] = []
    namespace = f"uploads-{time.monotonic_ns()}"
    brokers = [FleetBroker(url=stage.redis_url, namespace=namespace, middleware=[]) for _ in range(_PROCESSES)]
    actors = [_declare(broker, queue, waited) for broker in brokers]
    chunk, upload = actors[0]
    for _ in range(_CHUNKS):
        chunk.send()
    workers = [
        FleetWorker(broker, worker_threads=1, prefetch=1, people=first, lost_after=timedelta(seconds=30))
        for broker in brokers
    ]
    for worker in workers:
        worker.start()
    draw = random.Random("uploads")
    for _ in range(_UPLOADS):
        time.sleep(draw.expovariate(1 / 0.25))
        upload.send(time.monotonic())
    ends = time.monotonic() + 120
    while len(waited) < _UPLOADS and time.monotonic() < ends:
        threading.Event().wait(0.02)
    for broker in brokers:
        for name in {"backlog", queue}:
            broker.flush(name)
    for worker in workers:
        worker.stop(timeout=2_000)
    return waited


def _declare(broker: FleetBroker, queue: str, waited: list[float]) -> tuple[Any, Any]:
    @dramatiq.actor(broker=broker, queue_name="backlog")
    def chunk() -> None:
        time.sleep(_CHUNK)

    @dramatiq.actor(broker=broker, queue_name=queue)
    def upload(sent: float) -> None:
        waited.append(time.monotonic() - sent)
        time.sleep(_UPLOAD)

    return chunk, upload
