"""A job ten heartbeats long, in a process whose prefetch is full, starts exactly once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import dramatiq
import redis

from tests.broker.station import QUEUE, Station, stock
from tests.waiting import wait_until

Keep = Callable[[Station], Station]
HEARTBEAT = timedelta(milliseconds=300)
LONG = HEARTBEAT.total_seconds() * 10


def test_a_full_stock_worker_has_its_job_run_twice_and_ours_once(
    redis_url: str, redis_client: redis.Redis, namespace: str, stations: Keep
) -> None:
    starts: Counter[str] = Counter()

    def long(whose: str) -> None:
        starts[whose] += 1
        time.sleep(LONG if starts[whose] == 1 else 0)

    stock_workers = []
    for _ in range(2):
        options = {"maintenance_chance": 1_000_000, "heartbeat_timeout": int(HEARTBEAT.total_seconds() * 1000)}
        theirs = stock(redis_url, f"{namespace}:stock", **options)
        actor = dramatiq.actor(long, broker=theirs, queue_name=QUEUE)
        worker = dramatiq.Worker(theirs, worker_timeout=50, worker_threads=1)
        worker.queue_prefetch = worker.delay_prefetch = 1
        stock_workers.append(worker)
    actor.send("stock")
    actor.send_with_options(args=("stock later",), delay=3_600_000)  # its consumer of delays is full as well
    stock_workers[0].start()
    wait_until(lambda: starts["stock"] == 1)

    crew = [stations(Station(redis_url, namespace)) for _ in range(2)]
    ours = [station.actor(long) for station in crew]
    full = crew[0].work(threads=1, prefetch=1, lost_after=HEARTBEAT)
    ours[0].send("ours")
    wait_until(lambda: starts["ours"] == 1)
    ours[0].send("behind it")
    stock_workers[1].start()
    crew[1].work(threads=1, prefetch=1, lost_after=HEARTBEAT)
    crew[0].until_empty()
    wait_until(lambda: starts["stock"] == 2)
    for worker in stock_workers:
        worker.stop()
    assert starts["ours"] == starts["behind it"] == 1
    assert full.ends["done"] >= 1
