"""Whether what an alert tells of mends itself, and when: by how its queue flows now, else by its kind.

Not guaranteed: that it goes on as it flows now. A queue whose flow nobody counted is told by its kind alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from fleet.alerts import Alert
from fleet.probe import QueueReading
from fleet.readings import Readings
from fleet.views import span

_BY_FLOW = ("queue_old", "queue_lag", "queue_deep")
BY_KIND: Mapping[str, str] = {
    "queue_old": "If its lane works on, yes; a lane that stands still does not.",
    "queue_lag": "If less comes than its lane can do, yes.",
    "queue_deep": "If less comes than its lane can do, yes.",
    "queue_unserved": "Not by itself, unless its supervisor is just starting. What waits is kept.",
    "queue_broken": "No. Workers leave the queue alone, and what is in it stays.",
    "dead_letters": "No. Each stays until somebody queues it again or drops it, or its lane keeps it no longer.",
    "probe_stale": "Yes, as soon as a beat leads or the lane of check_queue_health is served.",
    "slot_expired": "Yes: the next slot takes what this one left.",
    "sweep_cut": "Yes, if the next pass reaches its end: it begins with what this one did not reach.",
    "sweep_failed": "The next pass tries those rows again; the same rows failing again do not mend.",
}


def mends(alert: Alert, reading: Readings | None, told: str = "") -> str:
    """One or two sentences; what is `told` of its kind elsewhere stands in for what is known of it here."""
    one = alert.finding
    queue = None if reading is None or reading.stale else reading.queues.get(one.subject)
    flow = _by_flow(queue) if queue is not None and one.kind in _BY_FLOW else None
    return flow or told or BY_KIND.get(one.kind, "Nobody wrote down whether it does.")


def _by_flow(queue: QueueReading) -> str | None:
    comes, ends = queue.rate_in, queue.rate_out
    if comes is None or ends is None:
        return None
    flows = f"{comes:,.1f} come and {ends:,.1f} end a minute"
    if not ends:
        return f"Not as it stands: nothing of it ended lately ({flows})."
    if ends <= comes:
        return f"Not as it flows now: {flows}."
    lasts = span(timedelta(minutes=queue.ready / (ends - comes)))
    return f"Yes: {flows}; at that its {queue.ready:,} are done in {lasts}."
