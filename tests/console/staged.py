"""A fleet as it stands at ten past three, written straight into the servers: for the pages' tests and the pictures.

Nothing runs; the processes are reports, kept fresh by a thread until `stop`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from dramatiq import Message
from sqlalchemy import Engine, text

from fleet import alerts, readings
from fleet.alerts import Finding
from fleet.app import App
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.workers.presence import Job, Presence, Report, present
from tests.console import staged_night
from tests.console.staged_night import MINUTE, TERM

_RUN = text(
    "INSERT INTO agent_runs (kind, status, outcome, idempotency_key, customer, input, queued_at) "
    "VALUES (:kind, :status, :outcome, :key, 'c', '{}', :at)"
)
_UPLOAD = text(
    "INSERT INTO upload_batches (status, customer, files_total, files_done, queued_at) "
    "VALUES ('reading', 'c', 95, 61, :at)"
)
FOUND = [
    Finding(
        "queue_lag",
        "transaction_postprocess",
        "lag p95",
        "9m12s",
        "5m",
        "whoever uploaded receipts and looks for what was read from them",
        "transaction_postprocess",
    ),
    Finding(
        "dead_letters",
        "transaction_postprocess",
        "new dead letters",
        "31 in 10 minutes",
        "0",
        "whoever uploaded receipts: 31 of them were not read",
        "transaction_postprocess",
    ),
]
_HOSTS = ("night-1", "night-2")


class Staged:
    """What was staged; `start` keeps its reports fresh."""

    def __init__(self, broker: FleetBroker, app: App) -> None:
        self.broker, self.app = broker, app
        self.token = str(uuid.uuid4())
        self.reports: list[Report] = []
        self._presence = Presence(broker.client, broker.namespace, lambda: self.reports)

    def start(self) -> None:
        self._presence.start()

    def stop(self) -> None:
        self._presence.stop()


def whole(broker: FleetBroker, app: App, engine: Engine | None) -> Staged:
    """Everything at once."""
    staged = Staged(broker, app)
    waiting(broker, "transaction_postprocess", 340, age=9 * MINUTE)
    waiting(broker, "transaction_sync", 1_204, age=MINUTE)
    waiting(broker, "agent_batch", 12, age=4 * MINUTE)
    dead_letters(broker, "agent_batch", 7, "run_evals", "deadline", "DeadlineExceeded: timed out after 340 of 1772")
    dead_letters(broker, "transaction_postprocess", 31, "read_attachment", "failed", "ModelUnavailable: 503")
    staged_night.stage(broker, app)
    staged_night.loads(broker, app)
    staged_night.flows(broker)
    readings.take(broker, "beat")
    alerts_open(broker)
    if engine is not None:
        runs(engine)
    staged.reports = [*processes(app), *beats(staged)]  # last: the jobs on it grow older from here
    staged.start()
    return staged


def seen(broker: FleetBroker) -> list[Report]:
    """The reports that stand in Redis."""
    return present(broker.client, broker.namespace)


def processes(app: App) -> Iterator[Report]:
    """A supervisor a lane and its workers, some of whose threads are busy."""
    now = clock.real_now()
    for number, lane in enumerate(app.lanes):
        host = _HOSTS[number % 2]
        yield Report("supervisor", lane.name, pid=400 + number, host=host)
        actors = [actor for actor in app.actors.values() if actor.queue_name in lane.queues]
        for process in range(lane.processes):
            over = lane.name == "agent_realtime"
            busy = min(lane.threads, 1 + 2 * number)
            jobs = tuple(
                Job(
                    str(uuid.UUID(int=number * 100 + thread)),
                    actors[thread % len(actors)].actor_name,
                    now - lane.budget.soft * ((0.13 + 0.21 * thread) if thread or not over else 1.13),
                    actors[thread % len(actors)].queue_name,
                    "body",
                    lane.budget.soft,
                    lane.budget.hard,
                )
                for thread in range(busy)
            )
            pid = 1000 + number * 10 + process
            yield Report("worker", lane.name, pid=pid, host=host, worker_id=str(pid), jobs=jobs, phase="serving")


def beats(staged: Staged) -> list[Report]:
    """Two replicas, of which one leads."""
    client, ns = staged.broker.client, staged.broker.namespace
    client.set(keys.leader(ns), staged.token, px=600_000)
    client.set(keys.epoch(ns), TERM)
    since = clock.real_now() - timedelta(hours=3, minutes=12)
    leads = Report(
        "beat", "beat", pid=77, host=_HOSTS[0], worker_id=staged.token, leads=True, term=TERM, leads_since=since
    )
    return [leads, Report("beat", "beat", pid=78, host=_HOSTS[1], worker_id=str(uuid.uuid4()))]


def waiting(broker: FleetBroker, queue: str, count: int, *, age: timedelta) -> None:
    """Messages of unknown actors that wait; the first of them so old."""
    ns, sent = broker.namespace, time.time() - age.total_seconds()
    with broker.client.pipeline(transaction=False) as pipe:
        for number in range(count):
            id = f"{queue}-waits-{number:07}"
            message = Message(queue, "waits", (number,), {}, {}, message_id=id, message_timestamp=int(sent * 1000))
            pipe.rpush(keys.queue(ns, queue), id)
            pipe.hset(keys.bodies(ns, queue), id, message.encode())  # type: ignore[arg-type]
            if number % 10_000 == 9_999:
                pipe.execute()
        pipe.execute()


def dead_letters(
    broker: FleetBroker, queue: str, count: int, actor: str, reason: str, exception: str, every: float = 41.0
) -> None:
    """Letters as a worker of ours leaves them, the last one just now."""
    ns, now = broker.namespace, time.time()
    scores, bodies, details = {}, {}, {}
    for number in range(count):
        id = f"{actor}-{number:05}"
        died = now - every * (count - number)
        options = {"retries": 4, "traceback": f"Traceback (most recent call last):\n  …\n{exception}"}
        bodies[id] = Message(queue, actor, (4_100 + number, "a text"), {}, options, message_id=id).encode()
        told = {"reason": reason, "exception": exception, "attempts": 5, "worker": "1010", "actor": actor}
        details[id], scores[id] = json.dumps(told), died * 1000
    broker.client.zadd(keys.dead(ns, queue), scores)  # type: ignore[arg-type]
    broker.client.hset(keys.dead_bodies(ns, queue), mapping=bodies)  # type: ignore[arg-type]
    broker.client.hset(keys.dead_details(ns, queue), mapping=details)  # type: ignore[arg-type]


def alerts_open(broker: FleetBroker) -> None:
    """Two alerts that have just opened."""
    alerts.judge(broker, FOUND, {one.kind: alerts.Rule(timedelta(0), keep=MINUTE) for one in FOUND})


def runs(engine: Engine) -> None:
    """Runs in several states, one of which waits for a person; two imports and an upload."""
    kinds = [
        ("prepare", "running", None),
        ("prepare", "prepared", "a proposal of 14 postings waits for approval"),
        ("submit", "needs_review", "nobody can tell whether the authority has it; ask by its key, then mark it"),
        ("submit", "submitted", "accepted as 2026-31-7"),
        ("eval", "passed", None),
        ("eval", "failed", "answered 4400 where 4930 is right"),
    ]
    began = datetime.now(UTC) - timedelta(minutes=19)
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE agent_runs, upload_batches CASCADE"))
        for number, (kind, status, outcome) in enumerate(kinds):
            told = {"kind": kind, "status": status, "outcome": outcome, "key": uuid.uuid4().hex}
            connection.execute(_RUN, {**told, "at": began + number * MINUTE})
        connection.execute(_UPLOAD, {"at": began})
