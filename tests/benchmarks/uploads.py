"""What a person just uploaded, while the lane's processes drain a full backlog: from `send` to the start.

A chunk of the backlog is a job of 200 ms, and so many of them wait that they last for 30 s; uploads come at random and
take 20 ms. Measured for uploads in the backlog's own queue, in a queue of their own without preference, and in one that
is fetched first. Processes, threads, prefetch and whose queue is fetched first are those of the house's lane. The
floor is what is left of the first of the running chunks to end: with four of them a fifth of one on the average.

Not measured: what a job costs the processors. Jobs sleep, and the processes are workers in this one. That uploads start
while real chunks read real documents is a figure of the night, `upload_start_p95`. There is no contender.
"""

from __future__ import annotations

import random
import threading
import time
from datetime import timedelta
from statistics import median, quantiles
from typing import Any

import dramatiq

from config.lanes import LANES
from fleet.broker import FleetBroker
from fleet.workers.worker import FleetWorker
from tests.benchmarks.stage import Stage

_LANE = next(lane for lane in LANES if "uploads" in lane.people)
_AT_ONCE = _LANE.processes * min(_LANE.threads, _LANE.prefetch or _LANE.threads)
_CHUNK, _UPLOADS, _UPLOAD = 0.2, 60, 0.020
_CHUNKS = round(_AT_ONCE * 30 / _CHUNK)


def report(stage: Stage) -> None:
    """Measure, and print the line."""
    said = []
    for how, queue, first in (
        ("in the backlog's queue", "backlog", ()),
        ("in a queue of their own", "uploads", ()),
        ("in one that is fetched first", "uploads", _LANE.people),
    ):
        waited = _measure(stage, queue, first)
        said.append(f"{how} median {median(waited):.2f} s, p95 {quantiles(waited, n=20)[-1]:.2f} s")
    lane = f"{_LANE.processes} processes of {_LANE.threads} threads, prefetch {_LANE.prefetch}"
    print(f"uploads until they start, while chunks of {_CHUNK:.1f} s fill {lane}: {'; '.join(said)}")


def _measure(stage: Stage, queue: str, first: tuple[str, ...]) -> list[float]:
    waited: list[float] = []
    namespace = f"uploads-{time.monotonic_ns()}"
    brokers = [FleetBroker(url=stage.redis_url, namespace=namespace, middleware=[]) for _ in range(_LANE.processes)]
    actors = [_declare(broker, queue, waited) for broker in brokers]
    chunk, upload = actors[0]
    for _ in range(_CHUNKS):
        chunk.send()
    workers = [
        FleetWorker(
            broker,
            worker_threads=_LANE.threads,
            prefetch=_LANE.prefetch,
            people=first,
            lost_after=timedelta(seconds=30),
        )
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
