"""Each janitor is killed at each of its boundaries; the next pass leaves everything as one whole pass would have."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from sqlalchemy import func, select

from books import recovery
from books.models import AgentRun, Attachment, AttachmentStatus, BankAccount, ImportJob, RunKind
from fleet import janitor
from fleet.app import process_broker
from fleet.broker import FleetBroker, dead, keys
from fleet.broker.trimming import OldLetters
from fleet.catalogue import publish_catalogue
from fleet.janitor import Chore
from fleet.storage import database, session
from fleet.workers.silent import SilentWorkers
from tests.books.relayed import relayed
from tests.books.test_recovery import account, add, csv, document, run, sent
from tests.books.test_recovery import books as books
from tests.broker.letters import fill
from tests.broker.station import QUEUE, Station
from tests.broker.turns import Turns
from tests.chaos.killing import killed_at

SYNC, PREPARE, READ, IMPORT = (
    "update_transactions_by_bank_account",
    "prepare_run",
    "extract_data_from_attachment",
    "import_csv",
)
MODELS: tuple[Any, ...] = (ImportJob, BankAccount, AgentRun, Attachment)


def syncs() -> dict[str, list[int]]:
    add(account(), lapsed=None, started_at=None)
    add(account(), lapsed=False)
    return {SYNC: [add(account()), add(account())]}


def runs() -> dict[str, list[int]]:
    add(document(), attempts=5)
    add(run(RunKind.EVAL))
    waiting = add(document(AttachmentStatus.QUEUED), queued_at=func.now() - timedelta(hours=1))
    return {PREPARE: [add(run(RunKind.PREPARE))], READ: [add(document()), waiting]}


def imports() -> dict[str, list[int]]:
    add(csv(), lapsed=False)
    add(csv(), attempts=5)
    return {IMPORT: [add(csv()), add(csv())]}


def rows() -> Counter[Any]:
    """Every row as a person sees it, whatever its id."""
    seen: Counter[Any] = Counter()
    with session() as s:
        for model in MODELS:
            for row in s.scalars(select(model)):
                ended = row.finished_at is not None
                seen[model.__name__, row.status, row.outcome, ended, row.lease_until is not None] += 1
    return seen


def empty() -> None:
    with session() as s:
        for model in MODELS:
            s.execute(model.__table__.delete())
    broker = process_broker()
    for queue in broker.lanes:
        broker.flush(queue)


# Not every other: those before a command and those behind it take turns.
THIRDS = pytest.mark.parametrize(
    "step", [pytest.param(3, id="every third boundary"), pytest.param(1, id="every boundary", marks=pytest.mark.soak)]
)


def killed_everywhere(
    broker: FleetBroker,
    start: Callable[[], Any],
    work: Callable[[], object],
    judge: Callable[[int, Any], None],
    step: int = 1,
    **hooks: Any,
) -> int:
    """For each n: start anew, be killed at the n-th boundary, do it again whole, judge; returns how many there were.

    Where not each is tried, it may say up to `step` - 1 too many.
    """
    number = 1 - step
    while True:
        number += step
        begun = start()
        with killed_at(number, **hooks) as boundaries:
            work()
        if boundaries.passed < number:
            judge(0, begun)
            return number - 1
        broker.client.connection_pool.disconnect()  # as the death of a process does
        if "engine" in hooks:
            hooks["engine"].dispose()
        work()
        judge(number, begun)


@THIRDS
@pytest.mark.parametrize(
    ("name", "chores", "begin"),
    [
        ("recover_stuck_syncs", recovery.stuck_syncs, syncs),
        ("requeue_stuck_runs", recovery.stuck_runs, runs),
        ("finish_stuck_imports", recovery.stuck_imports, imports),
    ],
)
def test_a_janitor_of_rows_that_is_killed_anywhere_loses_none_and_sends_none_twice(
    books: object, name: str, chores: Callable[[], list[Chore]], begin: Callable[[], dict[str, list[int]]], step: int
) -> None:
    empty()
    begin()
    janitor.run(name, chores())
    whole = rows()

    def start() -> dict[str, list[int]]:
        empty()
        return begin()

    def judge(number: int, expected: dict[str, list[int]]) -> None:
        relayed()
        assert rows() == whole, f"killed at boundary {number}"
        assert sent() == {(actor, row): 1 for actor, ids in expected.items() for row in ids}, f"at boundary {number}"

    boundaries = killed_everywhere(
        process_broker(), start, lambda: janitor.run(name, chores()), judge, step, engine=database(), redis=True
    )
    assert boundaries > 20


@pytest.fixture
def station(redis_url: str, namespace: str) -> Iterator[Station]:
    made = Station(redis_url, namespace)
    yield made
    made.stop()


@THIRDS
def test_a_janitor_of_workers_that_is_killed_anywhere_returns_each_message_once(
    station: Station, redis_client: redis.Redis, step: int
) -> None:
    lost_after = timedelta(seconds=0.3)
    actor = station.actor(lambda number: None, actor_name="note")

    def start() -> set[bytes]:
        for key in redis_client.scan_iter(f"{station.namespace}:*"):
            redis_client.delete(key)
        for number in range(2):
            actor.send(number)
            gone = Turns(station.broker.client, station.broker.own_scripts, station.namespace, f"gone-{number}")
            gone.take(1)
        return set(station.places())

    def judge(number: int, messages: set[bytes]) -> None:
        assert station.places() == {id: ["waiting"] for id in messages}, f"killed at boundary {number}"
        assert redis_client.hlen(keys.workers(station.namespace)) == 0

    def work() -> None:
        janitor.run("reap_lost_workers", [SilentWorkers(station.broker, [QUEUE], lost_after=lost_after)])

    # Looking on is the same boundary many times over: those of two looks, and of the two reapings at the end.
    begun = start()
    with killed_at(10_000, redis=True) as all_of_them:
        work()
    judge(0, begun)
    last = all_of_them.passed
    for number in [*range(1, 9, step), *range(last, last - 15, -step)]:
        begun = start()
        with killed_at(number, redis=True):
            work()
        station.broker.client.connection_pool.disconnect()
        work()
        judge(number, begun)


def test_a_janitor_of_dead_letters_that_is_killed_anywhere_leaves_those_that_are_kept(station: Station) -> None:
    broker: FleetBroker = station.broker
    station.actor(lambda number: None, actor_name="note")

    def start() -> None:
        broker.flush(QUEUE)
        fill(broker, 5, QUEUE)
        fill(broker, 3, QUEUE, died=time.time() - 20 * 86_400)  # the same three of them, long ago
        publish_catalogue(broker)

    def judge(number: int, _: None) -> None:
        assert len(list(dead.letters(broker, [QUEUE]))) == 2, f"killed at boundary {number}"
        left = broker.client.hlen(keys.dead_bodies(broker.namespace, QUEUE))
        assert left == broker.client.zcard(keys.dead(broker.namespace, QUEUE)), f"killed at boundary {number}"

    def work() -> None:
        janitor.run("trim_dead_letters", [OldLetters(broker)])

    assert killed_everywhere(broker, start, work, judge, redis=True) > 5
