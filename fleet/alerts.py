"""Alerts: what is wrong now and for how long it has been, told once when it opens and once when it closes.

(skeleton: the names are fixed, the work follows)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.broker import FleetBroker


@dataclass(frozen=True)
class Finding:
    """One figure that is over its threshold now. `found` and `threshold` are in a person's words."""

    kind: str
    subject: str
    figure: str
    found: str
    threshold: str
    means: str
    lane: str = ""


@dataclass(frozen=True)
class Rule:
    """For how long (night time) a finding must stand before it opens, and must be gone before it closes."""

    for_: timedelta
    keep: timedelta


@dataclass(frozen=True)
class Alert:
    """An open alert; `since` is when its finding was first there, `opened` when it was told, both night time."""

    finding: Finding
    since: datetime
    opened: datetime
    last: datetime

    @property
    def runbook(self) -> str:
        return f"#{self.finding.kind}"


KINDS: Mapping[str, str] = {
    "queue_old": "the oldest due message of a queue waits for longer than it may",
    "queue_lag": "messages of a queue start later after they were due than they may",
    "queue_deep": "a queue is deep and does not drain",
    "queue_unserved": "messages are due in a queue that no worker serves",
    "queue_broken": "a key of a queue is not of its type, so that its figures cannot be read",
    "dead_letters": "messages became dead letters",
    "probe_stale": "no reading of the queues was taken lately",
    "slot_expired": "a slot of an entry ended unrun, since it was not begun in its window",
    "sweep_cut": "a sweep was ended before its last row",
    "sweep_failed": "rows of a sweep failed",
}
"""Every kind of alert; each has a place in `docs/when-things-go-wrong.md`, named like it."""


def judge(broker: FleetBroker, findings: Iterable[Finding], rules: Mapping[str, Rule]) -> list[Alert]:
    """Bring the episodes up to date with what is found now, tell what opened and closed; returns what is open."""
    raise NotImplementedError


def open_alerts(broker: FleetBroker) -> list[Alert]:
    """The alerts that are open, longest first."""
    raise NotImplementedError
