"""Stock Dramatiq on one end of a queue and Nightshift on the other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import redis

from fleet.broker import keys
from tests.waiting import wait_until
from tests.workers.conftest import APP, Running
from tests.workers.conftest import supervise as supervise

STOCK_WORKER = """
import sys
import dramatiq
from dramatiq.brokers.redis import RedisBroker
broker = RedisBroker(url={url!r}, namespace={namespace!r})
dramatiq.set_broker(broker)
@dramatiq.actor(queue_name="jobs")
def wait(journal, name, until, seconds):
    open(journal, "a").write(f"stock {{name}} {{seconds}}\\n")
"""
PRODUCER = """
import sys
from pathlib import Path
from fleet.app import load
from fleet.unspent import OUTAGES, PARKINGS
wait = load(Path(sys.argv[1])).actor("wait")
wait.send(sys.argv[2], "sent", "", 0)
wait.send_with_options(args=(sys.argv[2], "delayed", "", 0), delay=300)
wait.send_with_options(args=(sys.argv[2], "awaited-postgresql", "", 0), **{OUTAGES: 3, PARKINGS: 2})
print(wait.send_many((sys.argv[2], f"many-{number}", "", 0) for number in range(2)))
"""


def test_what_a_stock_producer_sends_also_with_delay_a_nightshift_worker_runs(
    supervise: Callable[..., Running], redis_client: redis.Redis, namespace: str
) -> None:
    lane = supervise()
    lane.ready(1)
    sent = time.time()
    lane.send("delayed", seconds=0, delay_ms=700)
    lane.send("at-once", seconds=0)
    wait_until(lambda: len(lane.events("end")) == 2, 10)
    assert [words[1] for words in lane.events("begin")] == ["at-once", "delayed"]
    assert float(lane.events("begin", "delayed")[0][4]) - sent >= 0.7
    wait_until(lambda: redis_client.hlen(f"{namespace}:jobs.msgs") == 0, 5)
    assert redis_client.hlen(f"{namespace}:jobs.DQ.msgs") == 0


def test_what_nightshift_sends_at_once_a_stock_worker_runs(
    redis_url: str, redis_client: redis.Redis, namespace: str, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    (tmp_path / "stock_tasks.py").write_text(STOCK_WORKER.format(url=redis_url, namespace=namespace))
    environment = {**os.environ, "FLEET_REDIS_URL": redis_url, "FLEET_NAMESPACE": namespace}
    producer = [sys.executable, "-c", PRODUCER, str(APP), str(journal)]
    sent = subprocess.run(producer, env=environment, capture_output=True, text=True, timeout=30)
    assert (sent.returncode, sent.stdout) == (0, "2\n"), sent.stderr
    command = [sys.executable, "-m", "dramatiq", "stock_tasks", "--path", str(tmp_path), "-p", "1", "-t", "1"]
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        wait_until(lambda: journal.exists() and len(journal.read_text().splitlines()) == 4, 20)
    finally:
        worker.terminate()
        worker.wait(20)
    names = [line.split()[1] for line in journal.read_text().splitlines()]
    assert sorted(names) == ["awaited-postgresql", "many-0", "many-1", "sent"]
    assert redis_client.zcard(keys.due(namespace, "jobs")) == 1, "the delayed one waits for a Nightshift worker"
    assert redis_client.hlen(f"{namespace}:jobs.msgs") == 1
