"""How long what stops a lane's container waits before it kills, compared with the lane's drain: part of `fleet check`.

Reads `docker-compose.yml` and every YAML file below `config/deploy/kubernetes`, as they are written: a Deployment whose
command works a lane, and patches that set another grace for it by its name. A pod's grace begins with its `preStop`, so
what that sleeps is no part of the drain. A file that is no YAML is a finding. Not seen: what another tool, a JSON patch
or a chart makes of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from fleet.app import App
from fleet.declarations import PAST_DRAIN, ZERO, Lane

COMPOSE = "docker-compose.yml"
KUBERNETES = Path("config/deploy/kubernetes")
_POD_GRACE = timedelta(seconds=30)  # Kubernetes' own where none is given
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@dataclass(frozen=True)
class Grace:
    """What one file gives a container between SIGTERM and SIGKILL, and for which lane."""

    where: str
    field: str
    lane: str
    given: timedelta
    slept: timedelta = ZERO


def graces(app: App) -> Iterator[str]:
    """A finding for each container that is killed before its lane has drained, which loses the drain."""
    lanes = {lane.name: lane for lane in app.lanes}
    try:
        found = [*_compose(app.root / COMPOSE), *_kubernetes(app.root / KUBERNETES, app.root)]
    except _NotReadable as error:
        yield str(error)
        return
    for grace in found:
        if grace.lane in lanes:
            yield from _too_short(grace, lanes[grace.lane])


def _too_short(grace: Grace, lane: Lane) -> Iterator[str]:
    needed = grace.slept + lane.drain + PAST_DRAIN
    if grace.given < needed:
        before = f"its preStop {grace.slept}, " if grace.slept else ""
        yield (
            f"{grace.where}: {grace.field} {grace.given} is shorter than lane {lane.name!r} needs to drain "
            f"({before}{lane.drain} and {PAST_DRAIN}): give {needed} or more."
        )


class _NotReadable(Exception):
    """Raised when a file that should be YAML is not."""


def _documents(path: Path) -> list[Mapping[str, Any]]:
    import yaml

    try:
        return [document for document in yaml.safe_load_all(path.read_text()) if isinstance(document, dict)]
    except yaml.YAMLError as error:
        raise _NotReadable(f"{path} is no YAML: {error}. Mend it; its stop graces were not compared.") from None


def _compose(path: Path) -> Iterator[Grace]:
    for document in _documents(path) if path.is_file() else ():
        for service, body in (document.get("services") or {}).items():
            if lane := _worked(body.get("command")):
                given = _docker_duration(body.get("stop_grace_period", "10s"))
                yield Grace(f"{path.name}, service {service!r}", "stop_grace_period", lane, given)


def _kubernetes(folder: Path, root: Path) -> Iterator[Grace]:
    deployments = [
        (path.relative_to(root), document)
        for path in sorted(folder.rglob("*.y*ml"))
        for document in _documents(path)
        if document.get("kind") == "Deployment"
    ]
    lanes, slept = {}, {}
    for _, document in deployments:
        for container in _pod(document).get("containers") or ():
            if lane := _worked([*(container.get("command") or ()), *(container.get("args") or ())]):
                lanes[_name(document)] = lane
                slept[_name(document)] = _slept(container)
    for path, document in deployments:
        name, pod = _name(document), _pod(document)
        declares = any(_worked(container.get("command")) for container in pod.get("containers") or ())
        if name in lanes and (declares or "terminationGracePeriodSeconds" in pod):
            given = pod.get("terminationGracePeriodSeconds")
            seconds = _POD_GRACE if given is None else timedelta(seconds=given)
            where = f"{path}, Deployment {name!r}"
            yield Grace(where, "terminationGracePeriodSeconds", lanes[name], seconds, slept[name])


def _name(document: Mapping[str, Any]) -> str:
    return str((document.get("metadata") or {}).get("name", ""))


def _pod(document: Mapping[str, Any]) -> Mapping[str, Any]:
    template = (document.get("spec") or {}).get("template") or {}
    return template.get("spec") or {}


def _slept(container: Mapping[str, Any]) -> timedelta:
    stop = (container.get("lifecycle") or {}).get("preStop") or {}
    return timedelta(seconds=(stop.get("sleep") or {}).get("seconds", 0))


def _worked(command: Any) -> str | None:
    """The lane that a command works, if it is `… work LANE`."""
    words = command.split() if isinstance(command, str) else [str(word) for word in command or ()]
    return words[words.index("work") + 1] if "work" in words[:-1] else None


def _docker_duration(text: str) -> timedelta:
    """Docker's `1m30s`."""
    return timedelta(seconds=sum(float(n) * _UNITS[unit] for n, unit in re.findall(r"([\d.]+)(ms|h|m|s)", str(text))))
