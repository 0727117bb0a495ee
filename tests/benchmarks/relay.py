"""Rows a second that one relay of the outbox hands to Redis: 20,000 that senders left behind, beside stock's `send`.

A row is read, judged, accepted and marked as accepted; its deletion, 15 s later, is a pass of its own and given apart.
Stock has no outbox: its `send` from one thread is what the same messages would cost without one.
"""

from __future__ import annotations

import time
import uuid
from datetime import timedelta
from typing import Any, cast

from dramatiq.middleware import default_middleware
from sqlalchemy import Engine, create_engine, func, insert, update

from fleet.broker import FleetBroker
from fleet.relay import relay
from fleet.storage.engine import psycopg_url
from fleet.storage.tables import EngineBase, OutboxRow
from tests.benchmarks.contest import Aim, Claim, Contender, Figures, Pair
from tests.benchmarks.jobs import QUEUE, declare
from tests.benchmarks.stage import Stage

_MESSAGES = 20_000


def _left_behind(engine: Engine, broker: FleetBroker, actor: Any) -> None:
    """Rows as `send_on_commit` writes them, older than the relay's two seconds."""
    values = []
    for number in range(_MESSAGES):
        id = str(uuid.uuid4())
        encoded = actor.message_with_options(args=(number,), redis_message_id=id).encode()
        row = {"namespace": broker.namespace, "queue": QUEUE, "actor": actor.actor_name}
        values.append({**row, "redis_id": id, "message": encoded})
    with engine.begin() as connection:
        connection.execute(insert(OutboxRow).values(relay_at=func.clock_timestamp()), values)


def _measure(stage: Stage, contender: Contender) -> Figures:
    noop = declare(stage.broker(contender, middleware=[made() for made in default_middleware]), "noop")
    noop.send(0)  # connected, and its script loaded
    if contender.kind != "ours":
        began = time.monotonic()
        for number in range(_MESSAGES):
            noop.send(number)
        return {"messages/s": _MESSAGES / (time.monotonic() - began)}
    broker, engine = cast("FleetBroker", noop.broker), create_engine(psycopg_url(stage.database_url))
    outbox = [cast("Any", OutboxRow.__table__)]
    EngineBase.metadata.create_all(engine, tables=outbox)
    _left_behind(engine, broker, noop)
    began = time.monotonic()
    sent = relay(engine, broker).sent
    accepted = time.monotonic()
    with engine.begin() as connection:
        connection.execute(update(OutboxRow).values(relay_at=OutboxRow.relay_at - timedelta(minutes=1)))
    again = time.monotonic()
    deleted = relay(engine, broker).deleted
    ended = time.monotonic()
    EngineBase.metadata.drop_all(engine, tables=outbox)  # lines that migrate the same database come later
    engine.dispose()
    if (sent, deleted) != (_MESSAGES, _MESSAGES):
        raise RuntimeError(f"{sent} rows were sent and {deleted} deleted")
    return {"messages/s": _MESSAGES / (accepted - began), "rows deleted/s": _MESSAGES / (ended - again)}


CLAIM = Claim(
    "relay",
    "20,000 rows of the outbox handed to Redis by one relay",
    _measure,
    (Pair(aims={"messages/s": Aim(at_least=10_000)}),),
    higher_is_better=True,
    wants_database=True,
)
