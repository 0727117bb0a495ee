"""A beat that is scraped says what stands in Redis, whoever put it there."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families
from redis.backoff import NoBackoff
from redis.retry import Retry

from beat.__main__ import _export
from config.lanes import LANES
from fleet import metrics, read_gauges, readings
from fleet.allowance import Reason
from fleet.app import load, process_broker
from fleet.broker import FleetBroker
from fleet.settings import Settings
from tests.conftest import ROOT, Environment
from tests.waiting import wait_until


@pytest.fixture
def log(environment: Environment, tmp_path: Path) -> Iterator[Path]:
    """Of a beat of the bookkeeping, in the test's own namespace."""
    path = tmp_path / "log"
    with (
        path.open("wb") as written,
        subprocess.Popen(
            [sys.executable, "-m", "fleet", "--app", str(ROOT), "beat"], stdout=written, stderr=subprocess.STDOUT
        ) as process,
    ):
        yield path
        process.terminate()


def test_a_scrape_asks_over_a_client_of_its_own_alone(
    monkeypatch: pytest.MonkeyPatch, redis_url: str, namespace: str
) -> None:
    sources: dict[str, Any] = {}
    monkeypatch.setattr(read_gauges, "export", lambda **given: sources.update(given))
    broker = FleetBroker(lambda: Settings(redis_url=redis_url, namespace=namespace))
    monkeypatch.setitem(broker.__dict__, "client", redis.Redis(port=1, retry=Retry(NoBackoff(), 0)))
    _export(load(ROOT), broker, redis.Redis.from_url(redis_url))
    for source in sources.values():
        list(source())


def test_queues_allowances_and_quotas_are_there_with_the_labels_that_are_declared(log: Path) -> None:
    load(ROOT)
    readings.take(process_broker(), "housekeeping")
    url = wait_until(lambda: re.findall(r"http://127\.0\.0\.1:\d+/metrics", log.read_text()), 30)[0]
    with urllib.request.urlopen(url, timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    found = {family.name: family for family in families}
    depth = {(one.labels["queue"], one.labels["state"]) for one in found["fleet_queue_depth"].samples}
    assert {queue for lane in LANES for queue in lane.queues} <= {queue for queue, _ in depth}
    assert {state for _, state in depth} == {"ready", "delayed", "in_flight", "dead"}
    app = load(ROOT)
    elastic = {entry.name for entry in app.schedule if entry.elastic}
    shown = {one.labels["entry"] for one in found["fleet_allowance"].samples} if elastic else set()
    assert shown == elastic
    assert {one.labels["quota"] for one in found["fleet_quota_size"].samples} == {one.name for one in app.quotas}
    ticks = {one.labels["reason"] for one in found["fleet_balancer_ticks"].samples if one.name.endswith("_total")}
    assert ticks == set(get_args(Reason)), "said as zero before the first decision, so that silence is seen"
    expected = {"fleet_probe_timestamp_seconds", "fleet_queue_oldest_seconds", "fleet_queue_consumers"}
    assert expected <= found.keys()
    for name in found.keys() & {metric.name for metric in metrics.EXPORTED if metric.kind == "read"}:
        assert found[name].documentation == metrics.declared(name).means
        for sample in found[name].samples:
            assert set(sample.labels) == set(metrics.declared(name).labels)
