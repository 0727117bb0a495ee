"""The night as it is planned, and the night as it went so far: reads what a timeline is built from.

Planned is what the schedule says, each entry for as long as its runs of the last five weeks took (p95), or, while none
is on record, for as long as its soft budget lets it. Elastic work is a window, since when it goes on is decided then.

Not guaranteed: one instant for all that is read, nor that a plan comes true. A collision is two entries' work at the
same time, by their own runs; what a fan-out sent on is not in it. On failure: what redis-py raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from zoneinfo import ZoneInfo

from fleet import by_hand, entry_runs, ledger, readings
from fleet.allowance import decisions, leased
from fleet.app import App
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.declarations import Entry
from fleet.entry_runs import Run
from fleet.overlaps import expected, on_cpu
from fleet.timeline import Known, Load, Night, Recorded, Timeline, timeline

_RUNS_MOST = 400  # lines an entry that durations are taken from
_LINES_MOST = 4_000  # verdicts and runs an entry and night: more than an entry that comes each minute has


def zone_of(entries: Iterable[Entry]) -> ZoneInfo:
    """The zone that most entries are in; UTC without entries."""
    counted = Counter(entry.tz for entry in entries).most_common(1)
    return ZoneInfo(counted[0][0] if counted else "UTC")


def coming(app: App, now: datetime) -> date:
    """The day at whose noon the next night begins that a person would ask about: today's, by the schedule's clocks."""
    return now.astimezone(zone_of(app.schedule)).date()


def plan(app: App, broker: FleetBroker | None, day: date) -> Timeline:
    """The night that begins at noon of a day, as planned; without a broker by what is declared alone."""
    runs = {} if broker is None else {entry.name: _seen(broker, entry) for entry in app.schedule}
    pauses = {} if broker is None else by_hand.paused(broker.client, broker.namespace)
    night = Night.of(day, zone_of(app.schedule))
    return timeline(known(app, runs), Recorded(pauses=pauses), night, None)


def tonight(app: App, broker: FleetBroker, now: datetime | None = None) -> Timeline:
    """The night that an instant lies in, from noon to noon: what is on record until now, and what is to come."""
    now = now or clock.now()
    night = Night.around(now, zone_of(app.schedule))
    since = clock.to_real_instant(night.begins)
    lines = {
        entry.name: ledger.read(broker.client, broker.namespace, entry.name, _LINES_MOST, since)
        for entry in app.schedule
    }
    runs = {
        entry.name: entry_runs.settled(entry_runs.read(broker, entry.name, night.begins), now) for entry in app.schedule
    }
    elastic = [entry for entry in app.schedule if entry.elastic]
    recorded = Recorded(
        lines,
        runs,
        {entry.name: decisions(broker, entry.name, night.begins) for entry in elastic},
        by_hand.paused(broker.client, broker.namespace),
        loads(app, broker, night),
        leased(broker, elastic),
    )
    seen = {entry.name: _seen(broker, entry) for entry in app.schedule}
    return timeline(known(app, seen), recorded, night, now)


def known(app: App, runs: Mapping[str, Sequence[Run]]) -> list[Known]:
    """The entries of the schedule whose actors a lane serves, lane by lane, and how long each should take."""
    found = []
    for lane in app.lanes:
        for entry in app.schedule:
            actor = app.actors.get(entry.actor)
            if actor is not None and app.lane_of(actor.queue_name) == lane:
                found.append(Known(entry, lane.name, on_cpu(lane), expected(app, entry, runs.get(entry.name, ()))))
    return found


def loads(app: App, broker: FleetBroker, night: Night) -> dict[str, list[Load]]:
    """What ran and what waited in each lane, by the readings of a night."""
    found: dict[str, list[Load]] = {lane.name: [] for lane in app.lanes}
    for moment in readings.history(broker, night.begins):
        for lane in app.lanes:
            of_lane = [moment.queues[queue] for queue in lane.queues if queue in moment.queues]
            if of_lane:
                runs, waits = sum(one.in_flight for one in of_lane), sum(one.ready for one in of_lane)
                found[lane.name].append(Load(moment.at, runs, waits))
    return found


def _seen(broker: FleetBroker, entry: Entry) -> list[Run]:
    return entry_runs.read(broker, entry.name, most=_RUNS_MOST)
