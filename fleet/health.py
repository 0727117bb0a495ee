"""One look at the fleet: take a reading, find what is wrong, judge it. The leading beat and a housekeeping job do it.

Each of the two suffices, so that neither a jam in a lane nor a beat that lost its thread mutes the alarm; what one of
them no longer does, the other says (`probe_stale`). If both stop, the outside notices: each look that succeeded checks
in at a Sentry monitor (`fleet.check_ins.alive`).

What fails, and what follows: where no reading can be taken although Redis answers, what is stored is judged by its age
alone, and no alert of a queue opens or closes. Where Redis does not answer, what redis-py raises is raised.
"""

from __future__ import annotations

from typing import Any, Literal

import redis

from fleet import alerts, app, check_ins, findings, ledger, readings
from fleet.alerts import Alert, Finding
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.declarations import Lane
from fleet.logs import get_logger
from fleet.probe import GROWTH
from fleet.readings import Readings
from fleet.workers.presence import present

log = get_logger(__name__)

Role = Literal["beat", "housekeeping"]


def look(broker: FleetBroker, by: Role, client: redis.Redis | None = None) -> list[Alert]:
    """Read, judge, and return what is open; over `client` if it is given."""
    client = client or broker.client
    taken = _taken(broker, by, client)
    stored = readings.latest(broker, client)
    found = list(findings.of_roles(stored))
    default, own = app.thresholds()
    queues = taken.queues if taken else {}
    rules = findings.rules({queue: own.get(queue, default) for queue in queues})
    if taken is None:
        rules = {"probe_stale": rules["probe_stale"]}
    else:
        for queue, one in queues.items():
            lane = broker.lanes.get(queue)
            found += findings.of_queue(one, own.get(queue, default), lane.name if lane else "")
        found += _of_entries(broker, client, taken)
        found += findings.of_sweeps(taken)
    opened = alerts.judge(broker, found, rules, client)
    if taken is not None:
        check_ins.alive("probe")
    return opened


def _taken(broker: FleetBroker, by: Role, client: redis.Redis) -> Readings | None:
    """A reading, None if Redis answers and gives none."""
    try:
        return readings.take(broker, by, client)
    except (redis.ConnectionError, redis.TimeoutError):
        raise
    except Exception:
        log.exception("probe_failed", by=by)
        return None


def _of_entries(broker: FleetBroker, client: redis.Redis, taken: Readings) -> list[Finding]:
    entries = broker.entries
    since = clock.to_real_instant(taken.at - GROWTH)
    lines = ledger.since(client, broker.namespace, entries, since)
    actors: dict[str, Any] = broker.actors
    owns = {name: actor.queue_name for name, actor in actors.items()}
    lanes: dict[str, Lane] = {
        name: lane for name, entry in entries.items() if (lane := broker.lanes.get(owns.get(entry.actor, "")))
    }
    reports = present(client, broker.namespace) if taken.expired else []
    return list(findings.of_entries(taken, lines, lanes, reports, owns))
