"""PostgreSQL is killed and started again while lanes sync accounts and prepare runs: no storm, no lost row, no double.

Nor does an outage that lasts longer than a lane's attempts cost somebody who waits more than it lasts and some seconds.

The bank's and the model's own logs say what was asked; PostgreSQL's log says how often somebody connected.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from dramatiq import Message
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from books.calendar import today
from books.models import AccountStatus, AgentRun, AgentStep, BankAccount, RunKind, RunStatus, Transaction
from fleet.broker import FleetBroker, dead
from tests.books.conftest import ScriptedWorld
from tests.books.conftest import gateway as gateway
from tests.books.conftest import gateway_process as gateway_process
from tests.books.conftest import world as world
from tests.books.gateway import SandboxGateway
from tests.books.hosts import Host, hosts
from tests.books.test_agent_runs import completion
from tests.books.test_syncing import page
from tests.chaos.own_postgres import OwnPostgres, own_postgres
from tests.waiting import wait_until

ACCOUNTS, RUNS, TURNS = 300, 20, 4
LANES = ("transaction_sync", "agent_batch")
DAYS = [today() - timedelta(days=ago) for ago in (170, 140, 100, 80, 40, 4)]  # of an account's rows: three a page
POOLS = 16 + 4  # connections that the lanes hold at most: FLEET_DATABASE_POOL, and one a thread of agent_batch
RATE = 8  # of the clock; what comes back from an outage of PostgreSQL waits in real time
AWAY_SECONDS = 0.5  # and what the end and the start take
BACK_WITHIN = 90.0  # seconds: jobs come back within a few; the rest is work on a busy machine
AWAY_FOR_A_PERSON = 12.0  # the lane's three attempts end within 6 s
PERSON_SERVED_WITHIN = 15.0  # seconds: the sixth wait is 7.2 at most; the rest is work on a busy machine


class World:
    """A bank and a model that take their time, and their log."""

    def __init__(self, scripted: ScriptedWorld) -> None:
        self._lock = threading.Lock()
        self.pages: Counter[str] = Counter()
        """By account: how many pages the bank was asked for."""
        self.turns: Counter[tuple[str, int]] = Counter()
        """By task and number of messages: how often the model answered."""
        scripted.reply = self._reply

    def _reply(self, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        time.sleep(0.4)
        if "chat" in path:
            said = body["messages"]
            with self._lock:
                self.turns[said[1]["content"], len(said)] += 1
            return completion(None, "account_balances") if len(said) < 2 * TURNS else completion("Pay the VAT.")
        account = path.split("/")[-3]
        with self._lock:
            self.pages[account] += 1
        days = [day.isoformat() for day in DAYS if query["date_from"] <= day.isoformat() <= query["date_to"]]
        return 200, {"transactions": page(booked=[f"{account} {day}" for day in days])}


@pytest.fixture
def postgres() -> Iterator[OwnPostgres]:
    with own_postgres() as own:
        yield own


@dataclass
class Night:
    """The two lanes at work on their rows."""

    postgres: OwnPostgres
    broker: FleetBroker
    hosts: list[Host]
    began: float

    def ended(self) -> tuple[int, int]:
        """How many accounts are synced, how many runs are prepared."""
        synced = (BankAccount.status == AccountStatus.IDLE) & BankAccount.synced_through.is_not(None)
        with Session(self.postgres.engine) as s:
            accounts = s.scalar(select(func.count()).select_from(BankAccount).where(synced))
            runs = s.scalar(select(func.count()).select_from(AgentRun).where(AgentRun.status == RunStatus.PREPARED))
        return accounts or 0, runs or 0

    def said(self) -> Counter[str]:
        """The lanes' warnings and errors, by event."""
        lines = [json.loads(line) for host in self.hosts for line in host.logged(r"(warning|error)")]
        return Counter(line["event"] for line in lines if line["level"] in ("warning", "error"))

    def count(self, what: Any) -> int:
        with Session(self.postgres.engine) as s:
            return s.scalar(select(func.count()).select_from(what)) or 0


def begin(postgres: OwnPostgres, broker: FleetBroker) -> None:
    """Make the rows, and send a message for each."""
    with Session(postgres.engine, expire_on_commit=False) as s, s.begin():
        given = {"name": "n", "currency": "EUR", "customer": "c", "status": AccountStatus.IDLE}
        accounts = [BankAccount(external_id=str(uuid4()), **given) for _ in range(ACCOUNTS)]
        waits = {"kind": RunKind.PREPARE, "status": RunStatus.QUEUED, "customer": "c"}
        runs = [AgentRun(idempotency_key=str(uuid4()), input={"task": number}, **waits) for number in range(RUNS)]
        s.add_all([*accounts, *runs])
    for account in accounts:
        broker.enqueue(Message(LANES[0], "update_transactions_by_bank_account", (account.id,), {}, {}))
    for run in runs:
        broker.enqueue(Message(LANES[1], "prepare_run", (run.id,), {}, {}))


@pytest.fixture
def night(
    postgres: OwnPostgres, redis_url: str, namespace: str, world: ScriptedWorld, tmp_path: Path
) -> Iterator[Night]:
    now = datetime.now(UTC).isoformat()
    clock = {"FLEET_CLOCK_ORIGIN": now, "FLEET_CLOCK_ANCHOR": now, "FLEET_CLOCK_RATE": str(RATE)}
    servers = {"FLEET_REDIS_URL": redis_url, "FLEET_NAMESPACE": namespace, "FLEET_DATABASE_URL": postgres.url}
    broker = FleetBroker(url=redis_url, namespace=namespace)
    began = time.monotonic()
    with hosts(tmp_path, *LANES, **clock, **servers) as started:
        yield Night(postgres, broker, started, began)
    broker.client.close()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGQUIT, id="shut down at once", marks=pytest.mark.soak),
    ],
)
def test_a_postgresql_that_is_restarted_under_load_costs_no_row_and_starts_no_storm(
    night: Night, postgres: OwnPostgres, world: ScriptedWorld, how: signal.Signals
) -> None:
    log = World(world)
    begin(postgres, night.broker)
    wait_until(lambda: night.ended()[0] >= 60, 60)
    away_from, connected = time.monotonic(), postgres.logged("connection received")
    postgres.kill(how)
    threading.Event().wait(AWAY_SECONDS)
    before = postgres.logged("connection authorized")
    postgres.start()
    back, failed = time.monotonic(), night.said()["job_awaits_postgresql"]
    away = back - away_from
    assert 0 < failed <= (ACCOUNTS + RUNS) * most_failures(away), f"a storm of retries in {away} s"
    wait_until(lambda: night.ended() == (ACCOUNTS, RUNS), BACK_WITHIN)
    took, said = time.monotonic() - back, night.said()
    connects = postgres.logged("connection authorized") - before
    print(f"away {away:.1f} s, {failed} failed; all ended in {took:.0f} s; connections {connected}, {connects}; {said}")

    # Nothing lost, nothing twice: by the rows, and by what was asked for.
    assert (night.count(Transaction), night.count(AgentStep)) == (len(DAYS) * ACCOUNTS, (2 * TURNS - 1) * RUNS)
    assert (len(log.pages), len(log.turns)) == (ACCOUNTS, TURNS * RUNS)
    assert max(log.pages.values()) <= 4, "two before the restart, two after it"
    assert max(log.turns.values()) <= 2, "asked again is only what was answered and could not be stored"
    assert list(dead.letters(night.broker, LANES)) == []
    # Nor one of connections: each lane fills its pool once, and once more; a relay has a connection a pass.
    assert connected <= POOLS + 3 * (away_from - night.began) + 5
    assert connects <= POOLS + 3 * took + 5
    assert said["job_retries"] == 0, "none of it used up an attempt"
    failed = said["job_awaits_postgresql"]
    assert said.total() <= 2 * failed + 10, "of a job that could not go on two lines, of the outage a few"


@pytest.mark.timeout(150)
def test_what_a_person_waits_for_is_done_within_seconds_of_the_end_of_an_outage_longer_than_its_attempts(
    postgres: OwnPostgres, redis_url: str, namespace: str, world: ScriptedWorld, gateway: SandboxGateway, tmp_path: Path
) -> None:
    """One run is under way when PostgreSQL goes; the others are approved, and asked for, while it is away."""
    gone = threading.Event()
    world.reply = lambda *_: (gone.wait(30), completion("OK"))[1]
    with Session(postgres.engine, expire_on_commit=False) as s, s.begin():
        given = {"kind": RunKind.SUBMIT, "status": RunStatus.APPROVED, "customer": "c"}
        runs = [AgentRun(idempotency_key=str(uuid4()), input={"task": number}, **given) for number in range(5)]
        s.add_all(runs)
    messages = [Message("agent_realtime", "submit_approved_run", (run.id,), {}, {}) for run in runs]
    broker = FleetBroker(url=redis_url, namespace=namespace)
    servers = {"FLEET_REDIS_URL": redis_url, "FLEET_NAMESPACE": namespace, "FLEET_DATABASE_URL": postgres.url}
    with hosts(tmp_path, "agent_realtime", **servers) as (host,):
        broker.enqueue(messages[0])
        wait_until(lambda: world.count("chat"))
        postgres.kill(signal.SIGKILL)
        gone.set()
        for message in messages[1:]:
            broker.enqueue(message)
        threading.Event().wait(AWAY_FOR_A_PERSON)
        postgres.start()
        back = time.monotonic()
        wait_until(lambda: submitted(postgres) == len(runs), PERSON_SERVED_WITHIN)
        print(f"all filed {time.monotonic() - back:.1f} s after it was back")
        assert len(host.logged("job_awaits_postgresql")) <= len(runs) * most_failures(AWAY_FOR_A_PERSON + 5)
        assert not host.logged("job_retries")
    assert list(dead.letters(broker, ["agent_realtime"])) == []
    assert gateway.taken() == {f"run {run.id}": 1 for run in runs}
    broker.client.close()


def submitted(postgres: OwnPostgres) -> int:
    with Session(postgres.engine) as s:
        return s.scalar(select(func.count()).where(AgentRun.status == RunStatus.SUBMITTED)) or 0


def most_failures(away: float) -> int:
    """Of one message while PostgreSQL is away for so many seconds: its n-th wait is n seconds, or a fifth less."""
    return next(number for number in count(1) if 0.8 * number * (number + 1) / 2 > away)
