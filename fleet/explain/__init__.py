"""Why is this waiting, and what happens next: a message, a run, an entry or a lane in at most ten lines.

A name that means several things is explained as each. It costs Redis a few bounded commands a kind, however long the
queues are: a message's place is looked for among the first and last thousands of a queue only, which is then said.

Not guaranteed: one instant for all that is said. On failure: what redis-py or SQLAlchemy raise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from difflib import get_close_matches

from sqlalchemy import Engine

from fleet.app import App
from fleet.broker import FleetBroker
from fleet.clock import clock
from fleet.errors import FleetError
from fleet.explain import entries, lanes, messages, places, runs
from fleet.explain.model import MOST_LINES, Asked, Explanation, running
from fleet.workers.presence import present

__all__ = ["MOST_LINES", "Explanation", "NothingNamed", "explain"]

# What no name of a lane or an entry looks like.
_AN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-lost)?|.+@.*\d.*")


class NothingNamed(FleetError):
    """Raised when a name is neither a lane's, an entry's nor a run's, and no message's id."""

    def __init__(self, wanted: str, app: App) -> None:
        known = {**{entry.name: "entry" for entry in app.schedule}, **{lane.name: "lane" for lane in app.lanes}}
        close = get_close_matches(wanted, known, n=3, cutoff=0.5)
        if wanted in app.actors:
            hint = f"It is an actor; `fleet jobs` shows its budget, `fleet explain {_lane_of(app, wanted)}` its lane."
        elif close:
            hint = f"Did you mean {' or '.join(f'the {known[name]} {name}' for name in close)}?"
        else:
            hint = "Give the id of a message or a run, or the name of an entry or a lane."
        super().__init__(f"Nothing is named {wanted!r}: no lane, entry, message or run. {hint}")


def explain(
    app: App, broker: FleetBroker, wanted: str, database: Engine | None = None, now: datetime | None = None
) -> list[Explanation]:
    """Whatever a name means, explained; without a database no runs are known.

    Raises `NothingNamed`, with what may have been meant.
    """
    asked = Asked(app, broker, now or clock.now(), present(broker.client, broker.namespace))
    found = [*_declared(asked, wanted), *_messages(asked, wanted), *_runs(asked, wanted, database)]
    if found:
        return found
    if not _AN_ID.fullmatch(wanted):
        raise NothingNamed(wanted, app)
    return [Explanation.of("message", wanted, messages.gone(asked, wanted, len(_queues(app))))]


def _declared(asked: Asked, wanted: str) -> Iterator[Explanation]:
    for lane in asked.app.lanes:
        if lane.name == wanted:
            yield Explanation.of("lane", wanted, lanes.lines(asked, lane))
    for entry in asked.app.schedule:
        if entry.name == wanted:
            yield Explanation.of("entry", wanted, entries.lines(asked, entry))


def _messages(asked: Asked, wanted: str) -> Iterator[Explanation]:
    found = places.find(asked.broker, _queues(asked.app), wanted)
    for place in found:
        yield Explanation.of("message", wanted, messages.lines(asked, place))
    if not found:
        for job, report in asked.jobs():
            if job.message_id == wanted:
                yield Explanation.of("message", wanted, [f"{job.actor} of {job.queue} runs {running(job, report)}."])


def _runs(asked: Asked, wanted: str, database: Engine | None) -> Iterator[Explanation]:
    if database is None:
        return
    with database.connect() as connection:
        rows = runs.find(connection, wanted)
    for row in rows:
        yield Explanation.of("run", runs.name_of(row), runs.lines(asked, row))


def _queues(app: App) -> set[str]:
    return {queue for lane in app.lanes for queue in lane.queues} | {one.queue_name for one in app.actors.values()}


def _lane_of(app: App, actor: str) -> str:
    lane = app.lane_of(app.actors[actor].queue_name)
    return lane.name if lane is not None else "LANE"
