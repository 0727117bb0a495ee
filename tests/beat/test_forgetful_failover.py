"""A replica is promoted that never heard of the last fire: its slot is fired again, and not run again.

One address stands for Redis, as a failover keeps it; the worker is the one from before. The replica is cut off just
before the fire, so that the new master's mark is older, and the beat that leads then goes by it, also one that keeps
its term. Without the second line, as a control, the body runs twice.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis
from sqlalchemy import delete, select
from structlog.testing import capture_logs

from beat.fire import Firer
from beat.leader import Leader
from beat.now import Now
from fleet import Budget, Entry, Lane, Retry, ledger, queue
from fleet import app as application
from fleet.broker import FleetBroker, keys
from fleet.clock import Night, clock
from fleet.settings import Settings
from fleet.storage import engine as storage
from fleet.storage import session
from fleet.storage.tables import Slot
from fleet.workers.worker import FleetWorker
from middleware import default_order, slot_refusal
from middleware.slot_claim import SlotClaim
from tests.broker.conftest import OwnRedis
from tests.broker.proxy import Proxy
from tests.waiting import wait_until

SLOT = datetime(2026, 3, 2, 1, tzinfo=UTC)
BUDGET = Budget(timedelta(seconds=20), timedelta(seconds=40), because="no job of a test comes near it")
LANE = Lane(
    "lane",
    ["work"],  # type: ignore[arg-type]
    waits_for="a test",
    processes=1,
    threads=2,
    budget=BUDGET,
    retry=Retry(attempts=1, first=timedelta(seconds=1), longest=timedelta(seconds=1)),
)


class Pair:
    """A master and its replica behind one address."""

    def __init__(self, folder: Path) -> None:
        self.master, self.replica = OwnRedis(folder / "master"), OwnRedis(folder / "replica")
        for server in (self.master, self.replica):
            server._folder.mkdir()
        self.master.start()
        self.replica.start("--replicaof", "127.0.0.1", str(self.master.port))
        self.address = Proxy(self.master.url)

    def cut_off_replica(self) -> None:
        """Wait until it has everything; from here on it hears nothing more."""
        with self.master.client as master, self.replica.client as replica:
            master.set("last", "of all")  # WAIT goes by the last write of its own connection
            wait_until(lambda: master.wait(1, 1_000) == 1)
            replica.replicaof("NO", "ONE")

    def fail_over(self) -> None:
        self.address.lead_to(self.replica.url)
        self.master.kill()

    def stop(self) -> None:
        self.master.stop()
        self.replica.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    with made.address:
        yield made
    made.stop()


class House:
    """A beat and a worker on that address; `runs` counts the body, which ends once `go` is set."""

    def __init__(self, pair: Pair, broker: FleetBroker) -> None:
        self._pair, self.broker = pair, broker
        self.runs: list[int] = []
        self.go = threading.Event()

        @queue("work").actor(name="nightly", budget=BUDGET)
        def nightly() -> None:
            self.runs.append(1)
            self.go.wait(30)

        self._begin_term()
        self._worker: FleetWorker | None = None

    def work(self) -> None:
        self._worker = FleetWorker(self.broker, worker_timeout=50, worker_threads=2)
        self._worker.start()

    def _begin_term(self) -> None:
        entry = Entry("nightly", cron="0 * * * *", expires=timedelta(minutes=30), because="a test needs a slot")
        client = redis.Redis.from_url(self._pair.address.url)
        term, renewal = timedelta(seconds=60), timedelta(milliseconds=200)
        self._leader = Leader(client, self.broker.namespace, ttl=term, renewal=renewal)
        self._leader.start()
        wait_until(lambda: self._leader.leads())
        self._firer = Firer(self.broker, self._leader, [entry], Now())

    def next_term(self) -> None:
        """Another beat takes office: it knows the marks of the server that now stands there."""
        self._leader.stop()
        self._begin_term()

    @property
    def epoch(self) -> int:
        return self._leader.epoch

    def fire(self) -> None:
        """Pass over the entry until the server that now stands there has a line that says fired."""

        def fired() -> bool:
            try:
                self._firer.pass_over()
                lines = ledger.read(self.broker.client, self.broker.namespace, "nightly")
                return any(line.verdict == "fired" for line in lines)
            except redis.RedisError:
                return False

        wait_until(fired)

    def seen(self) -> None:
        """Pass over the entry before its slot is due: it owes nothing from before."""
        assert clock.now() < SLOT
        self._firer.pass_over()

    def until_idle(self) -> None:
        bodies = keys.bodies(self.broker.namespace, "work")
        wait_until(lambda: not self.broker.client.exists(bodies))

    def stop(self) -> None:
        self.go.set()
        if self._worker is not None:
            self._worker.stop(timeout=5_000)
        self._leader.stop()


@pytest.fixture(params=[True, False], ids=["with the second line", "without it"])
def second_line(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def house(pair: Pair, second_line: bool, migrated_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    settings = Settings(redis_url=pair.address.url, namespace="failover", database_url=migrated_url)
    order = [one for one in default_order() if second_line or not isinstance(one, SlotClaim)]
    broker = FleetBroker(lambda: settings, middleware=order)
    broker.lanes = {"work": LANE}
    monkeypatch.setattr(application, "process_broker", lambda: broker)
    monkeypatch.setattr(application, "settings", lambda: settings)
    monkeypatch.setattr(slot_refusal, "ASKS_EVERY", timedelta(milliseconds=200))
    storage.database.cache_clear()
    storage._sessions.cache_clear()
    clock.set_night(Night(origin=SLOT - timedelta(seconds=2), anchor=clock.real_now(), rate=1.0))
    made = House(pair, broker)
    yield made
    made.stop()
    clock.set_night(None)
    with session() as s:
        s.execute(delete(Slot))
    storage.database().dispose()
    storage.database.cache_clear()
    storage._sessions.cache_clear()


def slot() -> Slot:
    with session() as s:
        return s.scalars(select(Slot)).one()


def test_a_slot_that_ended_before_the_failover_is_fired_again_and_not_run_again(
    pair: Pair, house: House, second_line: bool
) -> None:
    house.work()
    house.seen()
    pair.cut_off_replica()
    house.go.set()
    house.fire()
    wait_until(lambda: house.runs)
    house.until_idle()
    pair.fail_over()
    house.next_term()
    house.fire()
    house.until_idle()
    assert len(house.runs) == (1 if second_line else 2)
    if second_line:
        assert (slot().slot, slot().state, slot().fires, slot().refused) == (SLOT, "done", 1, 1)


def test_a_slot_that_runs_through_the_failover_is_fired_again_and_not_run_again(
    pair: Pair, house: House, second_line: bool
) -> None:
    house.work()
    house.seen()
    pair.cut_off_replica()
    house.fire()
    wait_until(lambda: house.runs)
    pair.fail_over()
    house.next_term()
    house.fire()
    wait_until(lambda: slot().refused >= 2 if second_line else len(house.runs) == 2)
    house.go.set()
    house.until_idle()
    assert len(house.runs) == (1 if second_line else 2)
    if second_line:
        assert (slot().state, slot().fires) == ("done", 1)


@pytest.mark.parametrize("second_line", [True], indirect=True)
@pytest.mark.parametrize("taken", [False, True], ids=["before a worker took it", "after it ran"])
def test_a_leader_that_keeps_its_term_fires_again_what_was_forgotten_and_it_runs_once(
    pair: Pair, house: House, taken: bool
) -> None:
    house.seen()
    pair.cut_off_replica()
    house.go.set()
    if taken:
        house.work()
    house.fire()
    epoch = house.epoch
    if taken:
        house.until_idle()
    pair.fail_over()
    with capture_logs() as logs:
        house.fire()
    if not taken:
        house.work()
    house.until_idle()
    assert [line["fires"] for line in logs if line["event"] == "fires_forgotten"] == [1]
    assert house.epoch == epoch, "this was to be the same term"
    assert len(house.runs) == 1
    lines = [line for line in ledger.read(house.broker.client, house.broker.namespace, "nightly") if line.judges]
    assert [(line.verdict, line.first, line.count, line.epoch) for line in lines] == [("fired", SLOT, 1, epoch)]
