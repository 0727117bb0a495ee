"""How long what stops a lane's container waits before it kills, compared with the lane's drain: part of `fleet check`.

Of the files that `fleet.deployments` reads. A pod's grace begins with its `preStop`, so what that sleeps is no part of
the drain. A `FLEET_DRAIN` that is no duration counts as none: its process says so when it starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fleet.app import App
from fleet.declarations import PAST_DRAIN, ZERO, Lane
from fleet.deployments import COMPOSE, KUBERNETES, deployments, services
from fleet.settings import plain_duration

_POD_GRACE = timedelta(seconds=30)  # Kubernetes' own where none is given
_DRAIN = "FLEET_DRAIN"
_ISO = TypeAdapter(timedelta)
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@dataclass(frozen=True)
class Grace:
    """What one file gives a container between SIGTERM and SIGKILL, and for which lane."""

    where: str
    field: str
    lane: str
    given: timedelta
    slept: timedelta = ZERO
    drain: timedelta | None = None  # what the container's FLEET_DRAIN says in place of the lane's


def graces(app: App) -> Iterator[str]:
    """A finding for each container that is killed before its lane has drained, which loses the drain.

    Raises `NotReadable`.
    """
    lanes = {lane.name: lane for lane in app.lanes}
    for grace in [*_compose(app.root), *_kubernetes(app.root)]:
        if grace.lane in lanes:
            yield from _too_short(grace, lanes[grace.lane])


def not_compared(app: App) -> str | None:
    """One line that says of which lanes no file has a grace, and where it was looked; None where each has one.

    Raises `NotReadable`.
    """
    seen = {grace.lane for grace in [*_compose(app.root), *_kubernetes(app.root)]}
    missing = [lane.name for lane in app.lanes if lane.name not in seen]
    if not missing:
        return None
    return (
        f"Graces not compared, no manifest found for: {', '.join(missing)}. Looked in {', '.join(COMPOSE[:-1])} or "
        f"{COMPOSE[-1]}, and below {KUBERNETES}."
    )


def _too_short(grace: Grace, lane: Lane) -> Iterator[str]:
    drain = grace.drain or lane.drain
    needed = grace.slept + drain + PAST_DRAIN
    if grace.given < needed:
        before = f"its preStop {grace.slept}, " if grace.slept else ""
        yield (
            f"{grace.where}: {grace.field} {grace.given} is shorter than lane {lane.name!r} needs to drain "
            f"({before}{drain} and {PAST_DRAIN}): give {needed} or more."
        )


def _compose(root: Path) -> Iterator[Grace]:
    for where, lane, body in services(root):
        given = _docker_duration(body.get("stop_grace_period", "10s"))
        yield Grace(where, "stop_grace_period", lane, given, drain=_drain(body.get("environment")))


def _kubernetes(root: Path) -> Iterator[Grace]:
    for one in deployments(root):
        if one.declares or "terminationGracePeriodSeconds" in one.pod:
            given = one.pod.get("terminationGracePeriodSeconds")
            seconds = _POD_GRACE if given is None else timedelta(seconds=given)
            drain = _drain(one.container.get("env"))
            yield Grace(one.where, "terminationGracePeriodSeconds", one.lane, seconds, _slept(one.whole), drain)


def _slept(container: Mapping[str, Any]) -> timedelta:
    stop = (container.get("lifecycle") or {}).get("preStop") or {}
    return timedelta(seconds=(stop.get("sleep") or {}).get("seconds", 0))


def _drain(environment: Any) -> timedelta | None:
    """What it says of `FLEET_DRAIN`: Kubernetes' list of names and values, Compose's mapping or its list of lines."""
    if isinstance(environment, Mapping):
        told = dict(environment)
    else:
        pairs = [
            (one.get("name"), one.get("value")) if isinstance(one, Mapping) else str(one).partition("=")[::2]
            for one in environment or ()
        ]
        told = dict(pairs)
    return _duration(str(told.get(_DRAIN, "")))


def _duration(text: str) -> timedelta | None:
    """`40m` or `PT40M`, as the settings read it."""
    try:
        return plain_duration(text) or _ISO.validate_python(text)
    except ValidationError:
        return None


def _docker_duration(text: str) -> timedelta:
    """Docker's `1m30s`."""
    return timedelta(seconds=sum(float(n) * _UNITS[unit] for n, unit in re.findall(r"([\d.]+)(ms|h|m|s)", str(text))))
