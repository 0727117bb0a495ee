"""What is wrong now, in the four answers that on-call needs: what, who is hurt, does it mend itself, what to do.

Open alerts come from the probe (`fleet.alerts`), with what the runbook says of them. What nobody raises an alert for,
since whoever does is what is missing, is seen here: no beat leads, a lane has no process, nothing was probed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.exc import SQLAlchemyError

from fleet import alerts, readings, runs
from fleet.alerts import Alert
from fleet.console.desk import Desk
from fleet.console.mending import mends
from fleet.console.pages.lanes import LaneRow
from fleet.readings import Readings
from fleet.runs import RunsUnreadable
from fleet.views import span
from fleet.workers.presence import Report

_NO_BEAT = "beat_deposed"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong; `place` is one on the runbook's page, `since` night time where it is known."""

    what: str
    hurt: str
    mends: str
    act: str
    tone: str = "bad"
    lane: str = ""
    since: datetime | None = None
    place: str = ""


def problems(desk: Desk, lanes: Sequence[LaneRow], reports: Sequence[Report]) -> list[Problem]:
    """The worst first."""
    open_now, reading = alerts.open_alerts(desk.broker), readings.latest(desk.broker)
    told = {alert.finding.lane for alert in open_now if alert.finding.kind == "queue_unserved"}
    found = []
    if not any(report.kind == "beat" and report.leads for report in reports):
        found.append(_no_leader(desk))
    if not any(alert.finding.kind == "probe_stale" for alert in open_now):
        found += _unwatched(desk, reading)
    found += [of_alert(desk, alert, reading) for alert in open_now]
    found += [_unserved(row) for row in lanes if not row.serving and row.lane.name not in told]
    return sorted(found, key=lambda problem: problem.tone != "bad")


def of_alert(desk: Desk, alert: Alert, reading: Readings | None) -> Problem:
    """An open alert, with what the runbook says of its kind, and what the last reading says of its queue."""
    one, advice = alert.finding, desk.runbook.find(alert.runbook)
    kind = one.kind.replace("_", " ").capitalize()
    return Problem(
        f"{kind}, {one.subject}: {one.figure} {one.found}, threshold {one.threshold}.",
        f"{one.means[:1].upper()}{one.means[1:]}",
        mends(alert, reading, advice.mends if advice else ""),
        advice.act if advice else f"The runbook says nothing of {one.kind}; explain {one.lane or one.subject} instead.",
        lane=one.lane,
        since=alert.since,
        place=advice.anchor if advice else "",
    )


def waiting_for_people(desk: Desk) -> int | None:
    """How many runs wait for a person; None where the application shows none, or they cannot be read."""
    engine = desk.engine()
    if engine is None:
        return None
    try:
        with engine.connect() as connection:
            return sum(one.count for one in runs.standing(connection) if one.needs_review)
    except (RunsUnreadable, SQLAlchemyError):
        return None


def _no_leader(desk: Desk) -> Problem:
    advice = desk.runbook.find(_NO_BEAT)
    return Problem(
        "No beat leads: nothing of the schedule is sent.",
        "Whoever waits for tonight's work: syncs, audits, invoices. What was sent already goes on.",
        "Yes, if another replica runs: it leads within six seconds, and catches up as each entry says.",
        "If no replica runs, start `fleet beat`. If one runs and does not lead, its /healthz says why.",
        place=advice.anchor if advice else "",
    )


def _unwatched(desk: Desk, reading: Readings | None) -> list[Problem]:
    if reading is not None and not reading.stale:
        return []
    advice = desk.runbook.find("probe_stale")
    age = "was ever taken" if reading is None else f"was taken for {span(reading.age())}"
    return [
        Problem(
            f"No reading of the queues {age}: alerts that should open do not.",
            "Whoever relies on being told. Jobs run on as before.",
            "Yes, as soon as a beat leads, or the lane that runs check_queue_health is served.",
            "Look at the beats and at housekeeping; both take readings, each by itself.",
            place=advice.anchor if advice else "",
        )
    ]


def _unserved(row: LaneRow) -> Problem:
    left, some = row.left, ", ".join(queue.queue for queue in row.queues)
    return Problem(
        f"Nobody serves the lane {row.lane.name}.",
        f"{left:,} messages of {some} wait." if left else f"Nobody yet: nothing waits in {some}.",
        "Messages are kept; they run when the lane is back. A supervisor restarts its own processes within seconds.",
        f"Start `fleet work {row.lane.name}`; its log's last lines say why it ended.",
        tone="bad" if left else "warn",
        lane=row.lane.name,
    )
