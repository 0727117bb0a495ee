"""A run is made once a key, however often and however many at once ask for it."""

from __future__ import annotations

import threading
from typing import Any
from uuid import uuid4

import pytest
from dramatiq import Message
from sqlalchemy import text

import actors.agent_batch
import actors.agent_realtime  # noqa: F401  # what requests send to
from books import agent_runs
from books.models import AgentRun, RunKind, RunStatus
from books.run_requests import KeyReused, RequestedRun, request
from fleet.app import process_broker
from fleet.broker import keys
from fleet.storage import session
from tests.books.test_agent_runs import completion
from tests.waiting import wait_until

GIVEN = {"task": "Prepare the VAT return.", "limit_cents": 10**22, "share": 1e22}


@pytest.fixture
def key(environment: object) -> str:
    return str(uuid4())


def ask(key: str, given: Any = GIVEN, customer: str = "c", kind: Any = RunKind.PREPARE) -> RequestedRun:
    with session() as s:
        return request(s, kind, customer, given, idempotency_key=key)


def sent() -> list[tuple[Any, ...]]:
    """The arguments of what waits for `prepare_run`."""
    broker = process_broker()
    bodies = broker.client.hvals(keys.bodies(broker.namespace, "agent_batch"))
    return [Message.decode(body).args for body in bodies]


def somebody_waits() -> bool:
    with session() as s:
        return bool(s.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")))


def test_a_request_makes_a_run_and_sends_its_message_and_the_same_one_again_finds_it(key: str) -> None:
    first = ask(key)
    assert (first.status, first.result, first.new) == (RunStatus.QUEUED, None, True)
    again = ask(key, dict(reversed(GIVEN.items())))
    assert (again.id, again.status, again.new) == (first.id, RunStatus.QUEUED, False)
    assert sent() == [(first.id,)]


def test_a_repeated_request_resolves_to_the_run_while_it_runs_and_to_its_result_afterwards(
    key: str, world: Any
) -> None:
    over = threading.Event()

    def answer(*_: object) -> tuple[int, Any]:
        over.wait(20)
        return completion("Pay the VAT.")

    world.reply = answer
    run = ask(key)
    worker = threading.Thread(target=agent_runs.prepare, args=(run.id, "m1"))
    worker.start()
    wait_until(lambda: world.asked)
    during = ask(key)
    over.set()
    worker.join(20)
    assert (during.id, during.status, during.result) == (run.id, RunStatus.RUNNING, None)
    after = ask(key)
    assert (after.id, after.status, after.result) == (run.id, RunStatus.PREPARED, {"proposal": "Pay the VAT."})
    assert world.count("chat") == 1


def test_of_two_requests_that_arrive_at_once_the_second_gets_the_firsts_run(key: str) -> None:
    answers: list[RequestedRun] = []
    with session() as s:
        first = request(s, RunKind.PREPARE, "c", GIVEN, idempotency_key=key)
        second = threading.Thread(target=lambda: answers.append(ask(key)))
        second.start()
        wait_until(somebody_waits)
        assert answers == []
    second.join(10)
    assert [(one.id, one.new) for one in answers] == [(first.id, False)]
    assert sent() == [(first.id,)]


def test_many_requests_at_once_make_one_run_and_one_message(key: str) -> None:
    answers: list[RequestedRun] = []
    start = threading.Barrier(12)

    def one() -> None:
        start.wait(10)
        answers.append(ask(key))

    threads = [threading.Thread(target=one) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(answers) == 12
    assert len({one.id for one in answers}) == 1
    assert [one.new for one in answers].count(True) == 1
    assert len(sent()) == 1


def test_a_request_that_is_rolled_back_made_nothing_and_leaves_its_key_free(key: str) -> None:
    with pytest.raises(OSError, match="away"), session() as s:
        request(s, RunKind.PREPARE, "c", GIVEN, idempotency_key=key)
        raise OSError("away")
    assert sent() == []
    assert ask(key).new


@pytest.mark.parametrize(
    "other",
    [
        {"given": {**GIVEN, "limit_cents": 1}},
        {"given": {}},
        {"customer": "another"},
        {"kind": RunKind.SUBMIT},
    ],
    ids=["one figure", "nothing", "customer", "kind"],
)
def test_a_key_that_is_used_again_for_something_else_says_so_and_changes_nothing(
    key: str, other: dict[str, Any]
) -> None:
    run = ask(key)
    with pytest.raises(KeyReused) as refused:
        ask(key, **other)
    said = str(refused.value)
    assert key in said and f"agent run {run.id} (prepare, queued)" in said
    assert refused.value.found != refused.value.asked
    assert refused.value.found[:16] in said and refused.value.asked[:16] in said
    with session() as s:
        assert s.get_one(AgentRun, run.id).input == GIVEN
    assert sent() == [(run.id,)]


def test_an_input_that_json_does_not_have_is_refused_before_anything_is_written(key: str) -> None:
    with pytest.raises(TypeError, match="set is not JSON"):
        ask(key, {"accounts": {1, 2}})
    assert ask(key).new
