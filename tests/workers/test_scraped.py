"""What real processes export is what `fleet.metrics` declares: a lane says nothing of the beat, nor a beat of lanes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from fleet import metrics
from tests.waiting import wait_until
from tests.workers.conftest import APP, Running

OF_A_BEAT = {"fleet_beat_leading", "fleet_beat_clock_jumps"}
OF_A_LANE = {
    *("fleet_messages", "fleet_job_seconds", "fleet_start_lag_seconds", "fleet_jobs_running"),
    *("fleet_deadlines_raised", "fleet_lane_processes", "fleet_worker_starts", "fleet_worker_ends"),
    "fleet_messages_lost",
}


def scraped(log: Path) -> dict[str, Metric]:
    url = wait_until(lambda: re.findall(r"http://127\.0\.0\.1:\d+/metrics", log.read_text()), 20)[0]
    with urllib.request.urlopen(url, timeout=5) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {family.name: family for family in families if _ours(family)}


def _ours(family: Metric) -> bool:
    return family.name.startswith("fleet_") and not family.name.endswith("_created") and bool(family.samples)


@pytest.fixture
def beat(redis_url: str, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """The log of a beat of the test's own application."""
    log = tmp_path / "beat.log"
    environment = {**os.environ, "FLEET_REDIS_URL": redis_url, "FLEET_NAMESPACE": namespace}
    with (
        log.open("wb") as written,
        subprocess.Popen(
            [sys.executable, "-m", "fleet", "--app", str(APP), "beat"],
            env={**environment, "FLEET_LOG_FORMAT": "json"},
            stdout=written,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        yield log
        process.terminate()


def test_a_lane_and_a_beat_export_what_is_theirs_by_the_labels_that_are_declared(
    supervise: Callable[..., Running], beat: Path
) -> None:
    lane = supervise()
    lane.gate.touch()
    lane.ready(1)
    lane.send("job")
    wait_until(lambda: len(lane.events("end")) == 1, 30)
    wait_until(lambda: "fleet_messages" in scraped(lane.log), 30)
    of_lane, of_beat = scraped(lane.log), scraped(beat)
    assert set(of_lane) == OF_A_LANE
    assert set(of_beat) == OF_A_BEAT
    for name, family in {**of_lane, **of_beat}.items():
        declared = metrics.declared(name)
        assert family.documentation == declared.means or family.documentation == "Multiprocess metric"
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(declared.labels), sample
