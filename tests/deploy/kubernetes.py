"""What `kubectl kustomize` makes of the example overlay, for the tests of it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "config/deploy/kubernetes"
EXAMPLE = FOLDER / "overlays/example"

NO_KUBECTL = (
    None if shutil.which("kubectl") else "kubectl is not installed: what it makes of the overlay was not looked at"
)


@cache
def rendered() -> tuple[dict[str, Any], ...]:
    """Every object of the example overlay."""
    done = subprocess.run(["kubectl", "kustomize", str(EXAMPLE)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def of_kind(*kinds: str) -> Iterator[dict[str, Any]]:
    return (document for document in rendered() if document["kind"] in kinds)


def named(kind: str, name: str) -> dict[str, Any]:
    return next(document for document in of_kind(kind) if document["metadata"]["name"] == name)


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


def workloads() -> list[Workload]:
    return [Workload(document) for document in of_kind("Deployment", "Job")]


def lanes() -> dict[str, Workload]:
    """Lane -> the Deployment that works it."""
    return {load.command[2]: load for load in workloads() if load.command[:2] == ["fleet", "work"]}
