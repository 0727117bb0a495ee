"""A worker that is killed at any place of a sync or a run: every row ends, no page is lost, nothing is paid for twice.

What was asked is what bank and model wrote down, not what our rows say.
"""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import redis
from sqlalchemy import delete, select

from books import agent_runs, recovery, syncing
from books.models import AccountStatus, AgentRun, AgentStep, BankAccount, RunKind, RunStatus, Transaction
from fleet import app as application
from fleet.actor import asked_at
from fleet.clock import clock
from fleet.storage import leases, session
from tests.books import test_agent_runs, test_recovery, test_syncing
from tests.books.conftest import ScriptedWorld
from tests.books.killed import HALVES, Janitor, killed_everywhere
from tests.books.test_agent_runs import completion
from tests.conftest import ROOT

DAYS = [syncing.today() - timedelta(days=ago) for ago in (170, 100, 80, 3)]
FIRSTS = ["the message comes again", "a janitor passes"]

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


class World:
    """A bank with two rows a window for each account, a model that looks up and then answers; and their log."""

    def __init__(self, scripted: ScriptedWorld) -> None:
        self._lock = threading.Lock()
        self.pages: Counter[str] = Counter()
        """By account: how many it was asked for."""
        self.turns: Counter[tuple[str, int]] = Counter()
        """By task and number of messages: how often a model answered it."""
        scripted.reply = self._reply

    def _reply(self, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if "chat" in path:
            said = body["messages"]
            with self._lock:
                self.turns[said[1]["content"], len(said)] += 1
            return completion(None, "account_balances") if len(said) == 2 else completion("Pay the VAT.")
        account = path.split("/")[-3]
        with self._lock:
            self.pages[account] += 1
        asked = [day for day in DAYS if query["date_from"] <= day.isoformat() <= query["date_to"]]
        return 200, {"transactions": test_syncing.page(booked=[f"{account} {day}" for day in asked])}


@pytest.fixture
def outside(migrated: object, world: ScriptedWorld) -> World:
    application.load(ROOT)
    with session() as s:
        for model in (Transaction, AgentStep, BankAccount, AgentRun):
            s.execute(delete(model))
    return World(world)


class Sync:
    """A first sync, of two pages."""

    def __init__(self) -> None:
        with session() as s:
            row = test_recovery.account(AccountStatus.IDLE)
            s.add(row)
            s.flush()
            self.row, self.name = row.id, row.external_id
        self.message, self.asked_at = str(uuid4()), clock.now()

    def work(self) -> None:
        syncing.sync_transactions(self.row, token=self.message, asked_at=self.asked_at)

    def has(self, first: int) -> list[str]:
        """The first rows that the bank has of it, in the order of their names."""
        return sorted(f"{self.name} {day}" for day in DAYS[:first])


class Run:
    """A run of three steps: a turn, a look-up, a turn."""

    def __init__(self) -> None:
        self.name = str(uuid4())
        self.row = test_agent_runs.run(RunKind.PREPARE, RunStatus.QUEUED, {"task": self.name})
        self.message = str(uuid4())

    def work(self) -> None:
        agent_runs.prepare(self.row, token=self.message)

    def turns(self, log: World) -> Counter[int]:
        """How often each of its turns was answered, by the number of the step that it is."""
        return Counter({{2: 1, 4: 3}[said]: count for (task, said), count in log.turns.items() if self.name in task})


SYNCS = Janitor(
    "recover_stuck_syncs",
    recovery.stuck_syncs,
    rows=(BankAccount,),
    queue="transaction_sync",
    works={
        "update_transactions_by_bank_account": lambda sent: syncing.sync_transactions(
            *sent.args, token=sent.message_id, asked_at=asked_at(sent)
        )
    },
)
RUNS = Janitor(
    "requeue_stuck_runs",
    recovery.stuck_runs,
    rows=(AgentRun,),
    queue="agent_batch",
    works={"prepare_run": lambda sent: agent_runs.prepare(*sent.args, token=sent.message_id)},
)


def running(model: type[Any]) -> list[int]:
    with session() as s:
        return list(s.scalars(select(model.id).where(model.status == leases.RUNNING)))


def stored_steps(one: Run) -> list[int]:
    with session() as s:
        return list(s.scalars(select(AgentStep.number).where(AgentStep.run_id == one.row).order_by(AgentStep.number)))


@HALVES
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", FIRSTS)
def test_a_sync_killed_at_any_place_leaves_whole_pages_and_ends_with_every_row_once(
    outside: World, redis_client: redis.Redis, first: str, step: int
) -> None:
    killed = killed_everywhere(Sync, 20, 1 + (first == "a janitor passes" and step > 1), step)
    half_way = Counter[str]()
    for one in killed:
        now = test_syncing.now(one.row)
        done = now.pages_done
        assert sorted(test_syncing.stored(one.row)) == one.has(2 * done)
        half_way[f"{now.status} after page {done}"] += 1
    assert {"running after page 0", "running after page 1", "running after page 2"} <= half_way.keys(), half_way
    if first == "a janitor passes":
        SYNCS.pass_over_the_dead(redis_client)
        assert running(BankAccount) == []
    for one in killed:
        one.work()
    SYNCS.pass_over_the_dead(redis_client)
    for one in killed:
        now = test_syncing.now(one.row)
        assert (now.status, now.synced_through, now.lease_until) == (AccountStatus.IDLE, syncing.today(), None)
        assert sorted(test_syncing.stored(one.row)) == one.has(4)
        assert outside.pages[one.name] <= 4, "the killed sync's two, and the two of the one that ended"


@HALVES
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", FIRSTS)
def test_a_run_killed_at_any_place_ends_and_pays_for_no_answer_twice_that_was_stored(
    outside: World, redis_client: redis.Redis, first: str, step: int
) -> None:
    killed = killed_everywhere(Run, 25, 1 + (first == "a janitor passes" and step > 1), step)
    stored = {one.row: stored_steps(one) for one in killed}
    paid = {one.row: one.turns(outside) for one in killed}
    assert {tuple(numbers) for numbers in stored.values()} == {(), (1,), (1, 2), (1, 2, 3)}
    if first == "a janitor passes":
        RUNS.pass_over_the_dead(redis_client)
        assert running(AgentRun) == []
    for one in killed:
        one.work()
    RUNS.pass_over_the_dead(redis_client)
    for one in killed:
        now, turns = test_agent_runs.now(one.row), one.turns(outside)
        assert (now.status, now.result, now.lease_until) == (RunStatus.PREPARED, {"proposal": "Pay the VAT."}, None)
        assert stored_steps(one) == [1, 2, 3]
        again = {step for step in (1, 3) if turns[step] > 1}
        # Asked again is only what was answered, and whose worker died before it was stored.
        assert again == {step for step in (1, 3) if paid[one.row][step] and step not in stored[one.row]}
        assert max(turns.values()) <= 2
    assert any(one.turns(outside).total() > 2 for one in killed), "nobody was killed between an answer and its commit"
