"""A whole fleet's processes on one machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from fleet import Budget, Lane, Retry
from fleet.app import App
from fleet.up import Fleet
from tests.workers.conftest import APP

LANE = Lane(
    "jobs",
    queues=["jobs"],
    waits_for="a file of the test",
    processes=1,
    threads=1,
    budget=Budget(timedelta(minutes=2), timedelta(minutes=3), because="nothing is sent to it in this test"),
    retry=Retry(attempts=1, first=timedelta(seconds=1), longest=timedelta(seconds=1)),
    drain=timedelta(seconds=5),
)


@pytest.fixture
def fleet(redis_url: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setenv("FLEET_METRICS_PORT", "9108")
    made = Fleet(
        App(APP, {}, (LANE,), ()), tmp_path, environment={"FLEET_REDIS_URL": redis_url, "FLEET_NAMESPACE": namespace}
    )
    yield made
    made.stop()


def test_a_port_for_metrics_is_not_passed_on_since_all_would_want_it(fleet: Fleet) -> None:
    before = set(psutil.Process().children())
    fleet.start_lanes()
    (process,) = set(psutil.Process().children()) - before
    given = process.environ()
    assert given["FLEET_PARENT"] == str(os.getpid())
    assert "FLEET_METRICS_PORT" not in given
