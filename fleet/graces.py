"""How long what stops a lane's container waits before it kills, compared with the lane's drain: part of `fleet check`.

Of the files that `fleet.deployments` reads. A pod's grace begins with its `preStop`, so what that sleeps is no part of
the drain.
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
from fleet.deployments import deployments, services

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
    """A finding for each container that is killed before its lane has drained, which loses the drain.

    Raises `NotReadable`.
    """
    lanes = {lane.name: lane for lane in app.lanes}
    for grace in [*_compose(app.root), *_kubernetes(app.root)]:
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


def _compose(root: Path) -> Iterator[Grace]:
    for where, lane, body in services(root):
        yield Grace(where, "stop_grace_period", lane, _docker_duration(body.get("stop_grace_period", "10s")))


def _kubernetes(root: Path) -> Iterator[Grace]:
    for one in deployments(root):
        if one.declares or "terminationGracePeriodSeconds" in one.pod:
            given = one.pod.get("terminationGracePeriodSeconds")
            seconds = _POD_GRACE if given is None else timedelta(seconds=given)
            yield Grace(one.where, "terminationGracePeriodSeconds", one.lane, seconds, _slept(one.whole))


def _slept(container: Mapping[str, Any]) -> timedelta:
    stop = (container.get("lifecycle") or {}).get("preStop") or {}
    return timedelta(seconds=(stop.get("sleep") or {}).get("seconds", 0))


def _docker_duration(text: str) -> timedelta:
    """Docker's `1m30s`."""
    return timedelta(seconds=sum(float(n) * _UNITS[unit] for n, unit in re.findall(r"([\d.]+)(ms|h|m|s)", str(text))))
