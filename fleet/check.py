"""What an application's declarations say of one another, judged without any server: `fleet check`.

Each finding is one line that says what was found, in what, and what to do. Heavy work that overlaps (`fleet.overlaps`)
is a warning: it may be meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from fleet.app import App, warm_of
from fleet.clock import clock
from fleet.declarations import All, Entry
from fleet.deployments import NotReadable
from fleet.elastic_check import elastic_findings
from fleet.errors import CheckFailed, DeclarationInvalid, NotDeclared
from fleet.graces import graces
from fleet.memory_limits import memory_limits
from fleet.slots import shortest_period

if TYPE_CHECKING:
    from fleet.broker import FleetBroker

_NIGHTS = 7  # a week holds what comes on one day of it


def check(app: App) -> None:
    """Raise `CheckFailed` with every finding, or return."""
    findings = [*_lanes(app), *_entries(app), *elastic_findings(app), *_deployed(app)]
    if findings:
        raise CheckFailed(findings)


def overlaps(app: App, broker: FleetBroker | None = None) -> list[str]:
    """A warning for each two entries whose heavy work overlaps in the coming week, in the order of their times.

    By what their runs took that a broker's Redis has on record; without a broker by what they may take at most, their
    soft budgets. Of declarations that `check` is content with. Raises what redis-py raises.
    """
    from fleet.night_plan import coming, plan

    said: dict[tuple[str, str, str], str] = {}
    first = coming(app, clock.now())
    for day in (first + timedelta(days=more) for more in range(_NIGHTS)):
        timeline = plan(app, broker, day)
        for one in timeline.overlaps:
            told = timeline.night.told
            line = (
                f"Entries {one.first!r} and {one.second!r} overlap {one.where} from {told(one.begins)} to "
                f"{told(one.ends)}, on {one.begins.astimezone(timeline.night.zone):%A} for one: move one of them in "
                f"config/schedule.py, or give a tighter budget where they never take that long."
            )
            said.setdefault((one.first, one.second, one.where), line)
    return list(said.values())


def _lanes(app: App) -> Iterator[str]:
    for name, times in Counter(lane.name for lane in app.lanes).items():
        if times > 1:
            yield f"Lane {name!r} is declared {times} times: give each lane a name of its own."
    for name, times in Counter(quota.name for quota in app.quotas).items():
        if times > 1:
            yield f"Quota {name!r} is declared {times} times: give each provider one budget."
    served = Counter(queue for lane in app.lanes for queue in lane.queues)
    for queue, times in served.items():
        if times > 1:
            owners = ", ".join(lane.name for lane in app.lanes if queue in lane.queues)
            yield f"Queue {queue!r} is in {times} lanes ({owners}): leave it in one."
    for lane in app.lanes:
        try:
            warm_of(lane)
        except DeclarationInvalid as error:
            yield str(error)
        except Exception as error:  # whatever the application's module raises at its import
            yield f"Lane({lane.name!r}): the module of its warm={lane.warm!r} cannot be imported: {error!r}."
    declared = {actor.queue_name for actor in app.actors.values()}
    for queue in sorted(served.keys() - declared):
        yield f"Lane {_owner(app, queue)!r} serves queue {queue!r}, which no actor uses: {_hint(queue, declared)}"
    for actor in app.actors.values():
        if actor.queue_name not in served:
            yield (
                f"Actor {actor.actor_name!r} ({actor.declared_at}) is on queue {actor.queue_name!r}, which no lane "
                f"serves: add it to a lane in config/lanes.py. {_hint(actor.queue_name, served)}"
            )


def _deployed(app: App) -> Iterator[str]:
    try:
        yield from [*graces(app), *memory_limits(app)]
    except NotReadable as error:
        yield str(error)


def _owner(app: App, queue: str) -> str:
    return next(lane.name for lane in app.lanes if queue in lane.queues)


def _hint(name: str, known: object) -> str:
    return str(NotDeclared("queue", name, known)).split(". ", 1)[-1]  # type: ignore[arg-type]


def _entries(app: App) -> Iterator[str]:
    for name, times in Counter(entry.name for entry in app.schedule).items():
        if times > 1:
            yield f"Entry {name!r} is in the schedule {times} times: give each entry a name of its own."
    for entry in app.schedule:
        try:
            app.actor(entry.actor)
        except NotDeclared as error:
            yield f"Entry {entry.name!r}: {error}"
        yield from _period(entry)


def _period(entry: Entry) -> Iterator[str]:
    try:
        period = shortest_period(entry, clock.now())
    except DeclarationInvalid as error:
        yield str(error)
        return
    if period is None:
        yield f"Entry {entry.name!r}, cron={entry.cron!r}: it comes once or never. Give a cron that returns."
        return
    most = entry.catch_up.most if isinstance(entry.catch_up, All) else 1
    if entry.expires > most * period:
        caught_up = f" and it catches up on {most}" if most > 1 else ""
        yield (
            f"Entry {entry.name!r}: expires={entry.expires} is longer than its shortest period {period}{caught_up}, so "
            f"{most + 1} runs could stand in the queue at once: give {most * period} or less."
        )
    if entry.jitter >= period:
        yield (
            f"Entry {entry.name!r}: jitter={entry.jitter} is not shorter than its shortest period {period}, so a slot "
            f"could come before the one before it is due: give less."
        )
