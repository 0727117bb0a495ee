"""`fleet check` holds the memory limit of every Deployment of a lane against the lane's kill_rss."""

from __future__ import annotations

import pytest

from config.lanes import LANES
from tests.fleet.conftest import Fleet, WriteApp
from tests.fleet.test_check import findings
from tests.fleet.test_graces import write

LANE = "[lane('main', 'greetings', kill_rss=256 << 20)]"
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: main-lane}}
spec:
  template:
    spec:
      terminationGracePeriodSeconds: 60
      containers:
        - name: beside
          resources: {{limits: {{memory: 1Mi}}}}
        - name: fleet
          command: [fleet, work, main]
          resources: {{limits: {{memory: {memory}}}}}
"""
PATCH = """
kind: Deployment
metadata: {name: main-lane}
spec: {template: {spec: {containers: [{name: fleet, resources: {limits: {memory: 512Mi}}}]}}}
"""


@pytest.mark.parametrize("memory", ["767Mi", "0.7Gi", "800M", "804e6"])
def test_a_limit_that_one_process_and_a_suspect_could_reach_is_found(
    fleet: Fleet, write_app: WriteApp, memory: str
) -> None:
    root = write_app(LANE)
    write(root, DEPLOYMENT.format(memory=memory))
    (finding,) = findings(fleet, root)
    assert (
        f"base/lane.yaml, Deployment 'main-lane': limits.memory {memory} is less than lane 'main' may take" in finding
    )
    assert "give 768Mi or more" in finding


@pytest.mark.parametrize("memory", ["768Mi", "805306368", "1Gi", "0.9G", "1000000k"])
def test_a_limit_that_holds_them_is_not(fleet: Fleet, write_app: WriteApp, memory: str) -> None:
    root = write_app(LANE)
    write(root, DEPLOYMENT.format(memory=memory))
    assert findings(fleet, root) == []


def test_a_patch_that_takes_memory_away_is_found_in_its_own_file(fleet: Fleet, write_app: WriteApp) -> None:
    root = write_app(LANE)
    write(root, DEPLOYMENT.format(memory="2Gi"))
    write(root, PATCH, "overlays/here/patch.yaml")
    (finding,) = findings(fleet, root)
    assert finding.startswith("config/deploy/kubernetes/overlays/here/patch.yaml")


def test_a_limit_on_a_lane_without_kill_rss_is_found_with_what_would_fit(fleet: Fleet, write_app: WriteApp) -> None:
    root = write_app()
    write(root, DEPLOYMENT.format(memory="1Gi"))
    (finding,) = findings(fleet, root)
    assert "lane 'main' has no kill_rss: give Lane(kill_rss=) 384 MiB or less" in finding


def test_a_limit_that_is_no_quantity_is_found(fleet: Fleet, write_app: WriteApp) -> None:
    root = write_app(LANE)
    write(root, DEPLOYMENT.format(memory="1 GB"))
    (finding,) = findings(fleet, root)
    assert "limits.memory 1 GB is no quantity of Kubernetes" in finding


def test_every_lane_of_the_bookkeeping_retires_a_process_before_it_kills_one() -> None:
    for lane in LANES:
        assert lane.max_rss and lane.kill_rss and lane.max_rss < lane.kill_rss, lane.name
