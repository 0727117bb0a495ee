"""A worker that stood still for so long that its message was delivered again writes nothing to that message's row."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from dramatiq import Message
from sqlalchemy import select

from books.models import AgentRun, AgentStep, RunKind, RunStatus
from fleet.broker.broker import FleetBroker
from fleet.clock import clock
from fleet.storage import session
from tests.books.hosts import Host, hosts
from tests.books.test_agent_runs import completion, now
from tests.books.test_categorizing import account_of, add, sorted_into
from tests.books.test_categorizing import now as transaction
from tests.waiting import wait_until

LANE = "agent_batch"
STALE = 'fleet_stale_writes_total{table="agent_runs"}'


class Model:
    """Answers the n-th question when `answer(n)` is called, and not before."""

    def __init__(self, world: Any) -> None:
        self._asked = 0
        self._lock = threading.Lock()
        self._answers: dict[int, tuple[threading.Event, list[str]]] = {}
        world.reply = self._reply

    def _reply(self, *_: object) -> tuple[int, Any]:
        with self._lock:
            self._asked += 1
            event, said = self._answers.setdefault(self._asked, (threading.Event(), []))
        event.wait(60)
        return completion(said[0] if said else "nothing")

    def asked(self, count: int) -> bool:
        return self._asked >= count

    def answer(self, number: int, said: str) -> None:
        with self._lock:
            event, words = self._answers.setdefault(number, (threading.Event(), []))
        words.append(said)
        event.set()


@pytest.fixture
def model(world: Any) -> Iterator[Model]:
    made = Model(world)
    yield made
    for number in range(1, 10):
        made.answer(number, "over")


@pytest.fixture
def two_hosts(environment: object, model: Model, tmp_path: Path) -> Iterator[list[Host]]:
    with hosts(tmp_path, LANE, LANE, FLEET_LOST_AFTER="PT3S") as started:
        yield started


def queued(environment: Any, **options: int) -> tuple[int, str]:
    """A run, and the id of the message that is sent for it."""
    with session() as s:
        row = AgentRun(
            kind=RunKind.PREPARE, status=RunStatus.QUEUED, idempotency_key=str(uuid4()), customer="c", input={}
        )
        s.add(row)
        s.flush()
        row_id = row.id
    sender = FleetBroker(url=environment.redis_url, namespace=environment.namespace)
    message: Message[None] = Message(LANE, "prepare_run", (row_id,), {}, options)
    sender.enqueue(message)
    sender.client.close()
    return row_id, message.message_id


def taken_over(row_id: int, model: Model, two_hosts: list[Host]) -> tuple[Host, str]:
    """Stop the host that works on the run until the other one does; which stands still, and the other's token."""
    wait_until(lambda: model.asked(1), 20)
    first = now(row_id).lease_token
    assert first is not None
    worker, _, _ = first.partition(":")
    (zombie,) = [host for host in two_hosts if any(worker in line for line in host.logged("worker_ready"))]
    zombie.stand_still()
    wait_until(lambda: now(row_id).lease_token != first and model.asked(2), 30)
    heir = now(row_id).lease_token
    assert heir is not None
    return zombie, heir


def test_a_zombies_late_write_to_the_row_of_its_own_message_changes_nothing_and_is_counted(
    environment: Any, model: Model, two_hosts: list[Host]
) -> None:
    row_id, message_id = queued(environment)
    zombie, heir = taken_over(row_id, model, two_hosts)
    assert (now(row_id).lease_message, now(row_id).attempts) == (message_id, 2)

    zombie.go_on()
    model.answer(1, "what the zombie heard")
    wait_until(lambda: zombie.counted(STALE) == 1, 20)
    row = now(row_id)
    assert (row.status, row.lease_token, row.result) == (RunStatus.RUNNING, heir, None)
    with session() as s:
        assert s.scalars(select(AgentStep).where(AgentStep.run_id == row_id)).all() == []

    model.answer(2, "what the heir heard")
    wait_until(lambda: now(row_id).status == RunStatus.PREPARED, 20)
    assert now(row_id).result == {"proposal": "what the heir heard"}
    assert zombie.counted(STALE) == 1


def test_a_zombie_whose_budget_ended_meanwhile_does_not_end_the_row_that_its_message_is_working_on(
    environment: Any, model: Model, two_hosts: list[Host]
) -> None:
    row_id, _ = queued(environment, time_limit=10_000)
    zombie, heir = taken_over(row_id, model, two_hosts)
    began = now(row_id).queued_at
    wait_until(lambda: clock.real_now() > began + timedelta(seconds=11), 20)
    zombie.go_on()
    wait_until(lambda: zombie.logged("row_lost"), 20)
    assert (now(row_id).status, now(row_id).lease_token) == (RunStatus.RUNNING, heir)
    model.answer(2, "what the heir heard")
    wait_until(lambda: now(row_id).status == RunStatus.PREPARED, 20)
    wait_until(lambda: zombie.counted(STALE) == 1, 30)


@pytest.fixture
def two_sorting(environment: object, migrated: object, model: Model, tmp_path: Path) -> Iterator[list[Host]]:
    with hosts(tmp_path, *["transaction_postprocess"] * 2, FLEET_LOST_AFTER="PT3S") as started:
        yield started


def says(category: str) -> str:
    return json.dumps({"category": category})


def test_a_zombies_rows_are_the_second_deliverys_and_it_neither_asks_for_them_nor_frees_them(
    environment: Any, model: Model, two_sorting: list[Host]
) -> None:
    account = account_of("c")
    rows = [add(account, f"Kontoführung {number}") for number in range(3)]
    sender = FleetBroker(url=environment.redis_url, namespace=environment.namespace)
    message: Message[None] = Message("transaction_postprocess", "categorize_uncategorized_transactions", (), {}, {})
    sender.enqueue(message)
    sender.client.close()

    def held() -> set[tuple[str | None, str | None]]:
        return {(row.sorting_message, row.sorting_delivery) for row in map(transaction, rows)}

    wait_until(lambda: model.asked(1), 20)
    ((_, first),) = held()
    assert first is not None
    worker, _, _ = first.partition(":")
    (zombie,) = [host for host in two_sorting if any(worker in line for line in host.logged("worker_ready"))]
    zombie.stand_still()
    wait_until(lambda: model.asked(2), 30)
    ((taken_by, heir),) = held()
    assert (taken_by, heir != first) == (message.message_id, True)

    zombie.go_on()
    model.answer(1, says("Travel"))
    wait_until(lambda: zombie.counted('fleet_stale_writes_total{table="transactions"}') == 1, 20)
    wait_until(lambda: zombie.logged("end_was_stale"), 20)  # its chunk has ended
    assert held() == {(message.message_id, heir)}
    assert [transaction(row).sorting_tries for row in rows] == [2, 0, 0]
    for number in (2, 3, 4):
        model.answer(number, says("Bank fees"))
    wait_until(lambda: all(transaction(row).categorized_by for row in rows), 20)
    assert [sorted_into(row) for row in rows] == [("Bank fees", "model")] * 3
    assert not model.asked(5)
