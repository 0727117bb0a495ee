"""A run of the application's own (an import, an agent's): its row in `fleet_runs`, and the message that works on it.

The engine knows no application's tables; one that shows its runs makes a table or a view `fleet_runs` with the columns
kind, id, status, done, total, outcome, needs_review, updated_at, and perhaps lease_message and lease_until.

An outcome is scrubbed as a line of the log is, before it is cut; a name in it that nothing shows to be one stays.

Not guaranteed: that a row without a lease names whoever works on it. On failure: what SQLAlchemy raises, also where
looking for an id took two seconds; a database without such a table has no runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from fleet.clock import clock
from fleet.explain import messages, places
from fleet.explain.model import Asked, plain, running
from fleet.scrubbing import scrub
from fleet.views import span

TABLE = "fleet_runs"
_MOST = 5
_THERE = text(f"SELECT to_regclass('{TABLE}')")
_WITHIN = text("SET LOCAL statement_timeout = '2s'")  # a view's ids may have no index
_OF_ID = text(f"SELECT * FROM {TABLE} WHERE id = :id ORDER BY kind LIMIT {_MOST}")


def find(connection: Connection, wanted: str) -> list[Mapping[str, Any]]:
    """The rows with an id, or with a kind and an id (`import/17`); none where there is no such table."""
    if connection.scalar(_THERE) is None:
        return []
    connection.execute(_WITHIN)
    kind, sign, id = wanted.rpartition("/")
    rows = [dict(row) for row in connection.execute(_OF_ID, {"id": id}).mappings()]
    return [row for row in rows if not sign or row.get("kind") == kind]


def name_of(row: Mapping[str, Any]) -> str:
    """`kind/id` of a row."""
    return f"{plain(row.get('kind'))}/{plain(row.get('id'))}"


def lines(asked: Asked, row: Mapping[str, Any]) -> Iterator[str]:
    """What is to be said of a run."""
    far = ""
    if row.get("done") is not None:
        far = f", {row['done']:,}" + (f" of {row['total']:,}" if row.get("total") is not None else "") + " done"
    changed = row.get("updated_at")
    since = f", for {span(clock.real_now() - changed)}" if isinstance(changed, datetime) else ""
    yield f"It is {plain(row.get('status'))}{since}{far}."
    if row.get("outcome"):
        yield f"Its outcome: {plain(scrub(str(row['outcome'])))}"
    if row.get("needs_review"):
        yield "It WAITS FOR A PERSON: nobody but one who looks can say whether it happened, and nothing repeats it."
        return
    holder = row.get("lease_message")
    if holder:
        yield from _lease(row)
        yield from _holder(asked, str(holder))
    elif row.get("open") is False:
        yield "It has ended; nothing works on it any more."


def _lease(row: Mapping[str, Any]) -> Iterator[str]:
    until = row.get("lease_until")
    if not isinstance(until, datetime):
        return
    left = until - clock.real_now()
    if left.total_seconds() > 0:
        yield f"Its lease ends in {span(left)}; if whoever holds it is dead, a janitor frees it after that."
    else:
        yield f"Its lease lapsed {span(-left)} ago: a janitor's next pass frees it, or its message takes it over."


def _holder(asked: Asked, id: str) -> Iterator[str]:
    queues = {queue for lane in asked.app.lanes for queue in lane.queues}
    for job, report in asked.jobs():
        if job.message_id == id:
            yield f"Message {plain(id)} works on it, {running(job, report)}."
            return
    found = places.find(asked.broker, queues, id)
    if found:
        yield f"Its message {messages.where(asked, found[0])}: `fleet explain {plain(found[0].id)}`."
    else:
        yield f"Its message {plain(id)} stands in no queue: it ended, or is further in than was searched."
