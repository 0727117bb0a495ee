"""`fleet check` holds the grace of every Deployment of a lane against the lane's drain."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.conftest import Fleet, WriteApp
from tests.fleet.test_check import findings

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: main-lane}}
spec:
  template:
    spec:
      {grace}
      containers:
        - name: fleet
          command: [fleet, work, main]
          {stop}
"""
PATCH = """
kind: Deployment
metadata: {name: main-lane}
spec: {template: {spec: {terminationGracePeriodSeconds: 20}}}
"""


def write(root: Path, text: str, name: str = "base/lane.yaml") -> None:
    path = root / "config/deploy/kubernetes" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("grace", "stop", "needed"),
    [
        ("terminationGracePeriodSeconds: 44", "", "give 0:00:45 or more"),
        ("", "", "terminationGracePeriodSeconds 0:00:30 is shorter"),
        (
            "terminationGracePeriodSeconds: 134",
            "env: [{name: FLEET_DRAIN, value: 2m}]",
            "(0:02:00 and 0:00:15): give 0:02:15 or more",
        ),
        ("terminationGracePeriodSeconds: 49", "lifecycle: {preStop: {sleep: {seconds: 5}}}", "give 0:00:50 or more"),
    ],
)
def test_a_pod_killed_before_its_lane_has_drained_is_found(
    fleet: Fleet, write_app: WriteApp, grace: str, stop: str, needed: str
) -> None:
    root = write_app()
    write(root, DEPLOYMENT.format(grace=grace, stop=stop))
    (finding,) = findings(fleet, root)
    assert "config/deploy/kubernetes/base/lane.yaml, Deployment 'main-lane'" in finding
    assert needed in finding


def test_a_pod_with_time_for_its_pause_and_its_drain_is_not(fleet: Fleet, write_app: WriteApp) -> None:
    root = write_app()
    stop = "lifecycle: {preStop: {sleep: {seconds: 5}}}"
    write(root, DEPLOYMENT.format(grace="terminationGracePeriodSeconds: 50", stop=stop))
    assert findings(fleet, root) == []


@pytest.mark.parametrize("told", ["{FLEET_DRAIN: 2m}", "[FLEET_DRAIN=PT2M, FLEET_LOG_FORMAT]"])
def test_a_service_with_a_drain_of_its_own_is_held_against_that(fleet: Fleet, write_app: WriteApp, told: str) -> None:
    root = write_app()
    for grace, found in (("134s", 1), ("135s", 0)):
        service = f"{{command: fleet work main, stop_grace_period: {grace}, environment: {told}}}"
        (root / "docker-compose.yml").write_text(f"services: {{main: {service}}}")
        assert len(findings(fleet, root)) == found


@pytest.mark.parametrize("name", ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"])
def test_a_service_is_found_under_every_name_that_compose_looks_for(
    fleet: Fleet, write_app: WriteApp, name: str
) -> None:
    root = write_app()
    (root / name).write_text("services: {main: {command: fleet work main, stop_grace_period: 44s}}")
    (finding,) = findings(fleet, root)
    assert finding.startswith(f"{name}, service 'main'")


def test_of_two_compose_files_the_one_counts_that_compose_takes(fleet: Fleet, write_app: WriteApp) -> None:
    root = write_app()
    (root / "compose.yaml").write_text("services: {main: {command: fleet work main, stop_grace_period: 1m}}")
    (root / "docker-compose.yml").write_text("services: {main: {command: fleet work main}}")
    assert findings(fleet, root) == []


def test_a_lane_without_a_manifest_where_one_is_looked_for_is_said(fleet: Fleet, write_app: WriteApp) -> None:
    lanes, own = "[lane('main', 'greetings'), lane('spare', 'spares')]", "@queue('spares').actor\ndef own(): ...\n"
    root = write_app(lanes, actors=own)
    write(root.parent, DEPLOYMENT.format(grace="", stop=""))  # elsewhere: nobody looks there
    said = fleet(root, "check")
    assert said.returncode == 0
    assert "Graces not compared, no manifest found for: main, spare. Looked in compose.yaml, " in said.stdout
    write(root, DEPLOYMENT.format(grace="terminationGracePeriodSeconds: 60", stop=""))
    assert "no manifest found for: spare. " in fleet(root, "check").stdout
    (root / "compose.yaml").write_text("services: {it: {command: fleet work spare, stop_grace_period: 1m}}")
    assert fleet(root, "check").stdout.endswith("entries: nothing found.\n")


def test_a_patch_that_shortens_the_grace_is_found_in_its_own_file(fleet: Fleet, write_app: WriteApp) -> None:
    root = write_app()
    write(root, DEPLOYMENT.format(grace="terminationGracePeriodSeconds: 60", stop=""))
    write(root, PATCH, "overlays/here/patch.yaml")
    (finding,) = findings(fleet, root)
    assert finding.startswith("config/deploy/kubernetes/overlays/here/patch.yaml")


def test_a_file_that_is_no_yaml_is_a_finding(fleet: Fleet, write_app: WriteApp) -> None:
    root = write_app()
    write(root, "kind: [")
    (finding, *_) = findings(fleet, root)
    assert "lane.yaml is no YAML" in finding
