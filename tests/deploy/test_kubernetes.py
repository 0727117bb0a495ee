"""Base and example overlay without a cluster: they render, objects fit their schemas, pods are what lanes need."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import typer.main
import yaml

from config.lanes import LANES
from config.settings import Settings
from fleet.cli import cli
from fleet.declarations import PAST_DRAIN
from tests.deploy.kubernetes import BASE, EXAMPLE, FOLDER, Rendered, Workload, rendered

OLDEST, NEWEST = "1.30", "1.37"  # preStop's `sleep` came with 1.30
EVERY = {"fleet-database", "fleet-authorities"}
LANE = EVERY | {"fleet-redis-worker", "fleet-everywhere"}
SECRETS = {  # of a lane, beside what every lane needs, what its actors call with and no more
    "transaction-sync": LANE | {"books-bank", "books-payments"},
    "transaction-postprocess": LANE | {"books-model"},
    "agent-batch": LANE | {"books-model"},
    "agent-realtime": LANE | {"books-authority"},
    "housekeeping": LANE | {"books-mail", "books-authority", "books-payments"},  # asks about what a dead worker sent
    "beat": EVERY | {"fleet-redis-beat", "fleet-everywhere"},
    "console": EVERY | {"fleet-redis-console", "fleet-everywhere", "fleet-console"},
    "migrate": EVERY,
}
BY_NAME = {lane.name: lane for lane in LANES}
PROBES = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


@pytest.fixture(params=[BASE, EXAMPLE], ids=lambda folder: str(folder.name))
def made(request: pytest.FixtureRequest) -> Rendered:
    """The base, whose lanes end within their own drains, and the example, which has KEDA and its longer ones."""
    return rendered(request.param)


@pytest.fixture
def example() -> Rendered:
    return rendered(EXAMPLE)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_fits_the_schema_of_the_oldest_and_the_newest_kubernetes(made: Rendered, version: str) -> None:
    for document in made.documents:
        if document["kind"] != "ScaledObject":
            kubernetes_validate.validate(document, version, strict=True)


def test_every_scaled_object_fits_its_schema(example: Rendered) -> None:
    schema = json.loads((FOLDER.parents[2] / "tests/deploy/scaled_object.schema.json").read_text())
    for document in example.of_kind("ScaledObject"):
        jsonschema.validate(document, schema)


def test_every_lane_has_one_deployment_and_the_beat_has_three_replicas(made: Rendered) -> None:
    assert set(made.lanes()) == set(BY_NAME)
    assert len([load for load in made.workloads() if load.command[1] == "work"]) == len(LANES)
    assert made.named("Deployment", "beat")["spec"]["replicas"] == 3


def test_pods_of_which_several_run_always_are_spread_over_nodes_where_there_are(made: Rendered) -> None:
    scaled = [one["spec"] for one in made.of_kind("ScaledObject")]
    least = {spec["scaleTargetRef"]["name"]: spec["minReplicaCount"] for spec in scaled}
    several = {
        load.name: load
        for load in made.workloads()
        if max(load.document["spec"].get("replicas", 1), least.get(load.name, 1)) > 1
    }
    assert set(several) == ({"beat", "agent-realtime"} if least else {"beat"})
    for name, load in several.items():
        terms = load.pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        (by_node,) = [one["podAffinityTerm"] for one in terms if "hostname" in one["podAffinityTerm"]["topologyKey"]]
        assert by_node["topologyKey"] == "kubernetes.io/hostname"
        assert by_node["labelSelector"]["matchLabels"] == {"app.kubernetes.io/name": name}
        assert load.labels["app.kubernetes.io/name"] == name


def test_every_pod_has_time_for_its_drain_after_its_pause(made: Rendered) -> None:
    for name, load in made.lanes().items():
        assert "preStop" in load.container["lifecycle"], name
        assert load.left_for_the_drain >= BY_NAME[name].drain + PAST_DRAIN, name


def test_every_pod_may_do_no_more_than_it_needs(made: Rendered) -> None:
    for load in made.workloads():
        pod, container = load.pod, load.container
        assert pod["automountServiceAccountToken"] is False, load.name
        assert pod["enableServiceLinks"] is False, "a Service's variables would be read as FLEET_… settings"
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, load.name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


def test_every_pod_can_write_where_boards_and_metrics_stand_and_nowhere_else(made: Rendered) -> None:
    for load in made.workloads():
        volumes = {volume["name"]: volume for volume in load.pod["volumes"]}
        writable = {
            mount["mountPath"]: volumes[mount["name"]]
            for mount in load.container["volumeMounts"]
            if not mount.get("readOnly")
        }
        assert set(writable) == {"/dev/shm", "/tmp"}, load.name
        assert writable["/dev/shm"]["emptyDir"]["medium"] == "Memory"
        assert all("sizeLimit" in volume["emptyDir"] for volume in writable.values())


def test_every_container_says_what_it_needs_and_what_it_may_take(made: Rendered) -> None:
    for load in made.workloads():
        resources = load.container["resources"]
        for part in ("requests", "limits"):
            assert set(resources[part]) == {"cpu", "memory"}, load.name


def test_every_pod_that_runs_on_has_three_probes_and_a_disruption_budget(made: Rendered) -> None:
    budgets = {b["metadata"]["name"]: b["spec"] for b in made.of_kind("PodDisruptionBudget")}
    for load in made.workloads():
        if load.document["kind"] == "Job":
            continue
        console = load.name == "console"  # which has no page of its own for being ready
        for probe, page in PROBES.items():
            wanted = {"path": "/healthz", "port": "http"} if console else {"path": page, "port": "metrics"}
            assert load.container[probe]["httpGet"] == wanted, load.name
        assert budgets[load.name]["selector"]["matchLabels"].items() <= load.labels.items()
        assert load.labels["app.kubernetes.io/component"] == "beat" or budgets[load.name]["maxUnavailable"] == 1


def test_a_lane_and_the_beat_answer_probes_and_prometheus_on_the_port_that_they_are_given(made: Rendered) -> None:
    for load in [*made.lanes().values(), Workload(made.named("Deployment", "beat"))]:
        ports = {port["name"]: port["containerPort"] for port in load.container["ports"]}
        assert str(ports["metrics"]) == made.settings_of(load)["FLEET_METRICS_PORT"]
        assert made.settings_of(load)["FLEET_METRICS_HOST"] == "0.0.0.0"


def test_settings_are_ones_that_are_read_and_secrets_are_only_referred_to(made: Rendered) -> None:
    known = {
        str(field.validation_alias) if field.validation_alias else f"FLEET_{name}".upper()
        for name, field in Settings.model_fields.items()
    }
    for load in made.workloads():
        assert set(made.settings_of(load)) <= known | {"FLEET_SECRETS_DIR"}, load.name
        told = {one["name"]: one for one in load.container.get("env", ())}
        assert set(told) <= {"FLEET_DRAIN"} & known, "what else differs from pod to pod is no setting"
        assert all(set(one) == {"name", "value"} for one in told.values())
        assert not any("secretRef" in source for source in load.container["envFrom"]), load.name
    assert not list(made.of_kind("Secret"))


def test_no_manifest_holds_a_secret() -> None:
    for path in FOLDER.rglob("*.yaml"):
        assert not re.search(r"://[^$\s:/]+:[^$\s]+@|(?i:password|_key|secret_key):\s*\S", path.read_text()), path


def test_every_pod_gets_the_secrets_that_it_needs_as_files_where_its_settings_look_for_them(made: Rendered) -> None:
    for load in made.workloads():
        (volume,) = [volume["projected"] for volume in load.pod["volumes"] if "projected" in volume]
        assert volume["defaultMode"] == 0o440, "the group is fsGroup's, and others read nothing"
        names = {source["secret"]["name"] for source in volume["sources"]}
        assert names == SECRETS[load.name], load.name
        optional = {source["secret"]["name"] for source in volume["sources"] if source["secret"].get("optional")}
        assert optional <= {"fleet-everywhere", "fleet-authorities"}, "a pod that lacks what it needs must not start"
        (mount,) = [mount for mount in load.container["volumeMounts"] if mount["name"] == "secrets"]
        assert mount["mountPath"] == made.settings_of(load)["FLEET_SECRETS_DIR"] and mount["readOnly"]


def test_secrets_are_read_as_kubernetes_lays_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "..2026_11_30").mkdir()
    (tmp_path / "..data").symlink_to("..2026_11_30")
    kept = {"FLEET_REDIS_URL": "redis://valkey:6379/0", "BOOKS_MODEL_KEY": "of the model", "ca.pem": "no setting"}
    for name, value in kept.items():
        (tmp_path / "..data" / name).write_text(value)
        (tmp_path / name).symlink_to(f"..data/{name}")
    for name in [name for name in os.environ if name.startswith(("FLEET_", "BOOKS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FLEET_SECRETS_DIR", str(tmp_path))
    read = Settings.read()
    assert (read.redis_url, read.model_key) == ("redis://valkey:6379/0", "of the model")


def test_one_line_says_which_release_runs_and_it_is_never_latest(example: Rendered) -> None:
    images = {load.container["image"] for load in example.workloads()}
    (image,) = images
    assert re.search(r"(:[\w][\w.-]*|@sha256:[0-9a-f]{64})$", image) and not image.endswith(":latest")
    (set_by,) = yaml.safe_load((EXAMPLE / "kustomization.yaml").read_text())["images"]
    assert image == f"{set_by['newName']}:{set_by['newTag']}"


def test_the_migration_can_be_applied_before_the_rest_with_all_that_it_refers_to(made: Rendered) -> None:
    first = {"settings", "migrate"}
    chosen = [
        one for one in made.documents if one["metadata"].get("labels", {}).get("app.kubernetes.io/component") in first
    ]
    assert {one["kind"] for one in chosen} == {"ConfigMap", "Job"}
    (job,) = [Workload(one) for one in chosen if one["kind"] == "Job"]
    assert job.command == ["fleet", "migrate"] and made.settings_of(job)
    assert "persistentVolumeClaim" not in str(job.pod["volumes"])


def test_every_command_is_one_that_the_command_line_takes(made: Rendered) -> None:
    group = typer.main.get_command(cli)
    for load in made.workloads():
        program, command, *arguments = load.command
        assert program == "fleet"
        group.commands[command].make_context(command, arguments)  # type: ignore[attr-defined]


def test_nothing_is_reachable_and_nothing_is_reached_that_no_policy_names(made: Rendered) -> None:
    policies = {policy["metadata"]["name"]: policy["spec"] for policy in made.of_kind("NetworkPolicy")}
    denied = policies["default-deny"]
    assert set(denied) == {"podSelector", "policyTypes"} and denied["policyTypes"] == ["Ingress", "Egress"]
    for load in made.workloads():
        assert selects(denied, load), load.name
        assert selects(policies["to-servers"], load)
        reaches = load.command[1] == "work"
        assert selects(policies["to-the-world"], load) == reaches, load.name
        assert selects(policies["to-mail"], load) == (load.name == "housekeeping"), load.name
        assert selects(policies["from-prometheus"], load) == (reaches or load.name == "beat")
        assert selects(policies["console-from-ingress"], load) == (load.name == "console")
    for name, port in (("to-the-world", 443), ("to-mail", 587)):
        (world,) = policies[name]["egress"]
        assert "169.254.0.0/16" in world["to"][0]["ipBlock"]["except"], (
            "a cloud's metadata service gives out credentials"
        )
        assert world["ports"] == [{"protocol": "TCP", "port": port}]


def selects(policy: dict[str, Any], load: Workload) -> bool:
    selector = policy["podSelector"]
    matched = selector.get("matchLabels", {}).items() <= load.labels.items()
    return matched and all(load.labels.get(e["key"]) in e["values"] for e in selector.get("matchExpressions", ()))
