"""What `kubectl kustomize` makes of the base and of the example overlay, for the tests of them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "config/deploy/kubernetes"
BASE, EXAMPLE = FOLDER / "base", FOLDER / "overlays/example"


@dataclass(frozen=True)
class Workload:
    """A Deployment or a Job, and its one container."""

    document: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def labels(self) -> dict[str, str]:
        labels: dict[str, str] = self.document["spec"]["template"]["metadata"]["labels"]
        return labels

    @property
    def pod(self) -> dict[str, Any]:
        pod: dict[str, Any] = self.document["spec"]["template"]["spec"]
        return pod

    @property
    def container(self) -> dict[str, Any]:
        (container,) = self.pod["containers"]
        found: dict[str, Any] = container
        return found

    @property
    def command(self) -> list[str]:
        command: list[str] = self.container["command"]
        return command

    @property
    def left_for_the_drain(self) -> timedelta:
        """Its grace without what its preStop sleeps."""
        slept = self.container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        return timedelta(seconds=self.pod.get("terminationGracePeriodSeconds", 30) - slept)


@dataclass(frozen=True)
class Rendered:
    """Every object that a folder is rendered to."""

    documents: tuple[dict[str, Any], ...]

    def of_kind(self, *kinds: str) -> Iterator[dict[str, Any]]:
        return (document for document in self.documents if document["kind"] in kinds)

    def named(self, kind: str, name: str) -> dict[str, Any]:
        return next(document for document in self.of_kind(kind) if document["metadata"]["name"] == name)

    def workloads(self) -> list[Workload]:
        return [Workload(document) for document in self.of_kind("Deployment", "Job")]

    def lanes(self) -> dict[str, Workload]:
        """Lane -> the Deployment that works it."""
        return {load.command[2]: load for load in self.workloads() if load.command[:2] == ["fleet", "work"]}

    def settings_of(self, load: Workload) -> dict[str, str]:
        configured: dict[str, str] = {}
        for source in load.container["envFrom"]:
            if "configMapRef" in source:
                configured |= self.named("ConfigMap", source["configMapRef"]["name"])["data"]
        return configured


@cache
def rendered(folder: Path) -> Rendered:
    """Skips the test that asks where there is no kubectl."""
    if shutil.which("kubectl") is None:
        pytest.skip(f"kubectl is not installed: what it makes of {folder.name} was not looked at")
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return Rendered(tuple(yaml.safe_load_all(done.stdout)))
