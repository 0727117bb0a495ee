"""What a real beat fired and a real worker ran, or came too late to run, is in the night's timeline."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from beat.fire import Firer
from beat.leader import Leader
from beat.now import Now
from fleet import Budget, Entry, Lane, Retry, by_hand, queue
from fleet import app as application
from fleet.app import App
from fleet.broker import FleetBroker, keys
from fleet.clock import clock
from fleet.night_plan import tonight
from fleet.settings import Settings
from fleet.workers.worker import FleetWorker
from tests.beat.beaten import MINUTE, SECOND, START, StandingNight
from tests.waiting import wait_until

SWEEP = Entry("sweep", cron="10,20,30,40,50 1 * * *", expires=10 * MINUTE, because="a test needs slots")
BUDGET = Budget(timedelta(seconds=30), timedelta(seconds=60), because="the jam lasts as long as the test wants")
RETRY = Retry(attempts=1, first=SECOND, longest=SECOND)
LANE = Lane("lane", ("work",), waits_for="a test", processes=1, threads=1, budget=BUDGET, retry=RETRY)


@pytest.fixture
def worker(broker: FleetBroker, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FleetWorker]:
    settings = Settings(redis_url=redis_url, namespace=broker.namespace)
    monkeypatch.setattr(application, "settings", lambda: settings)
    broker.lanes = {"work": LANE}
    made = FleetWorker(broker, worker_timeout=50, worker_threads=1)
    yield made
    made.stop()


def test_the_night_shows_what_expired_behind_a_jam_what_ran_after_it_and_what_was_paused(
    night: StandingNight, broker: FleetBroker, leader: Leader, worker: FleetWorker, redis_client: redis.Redis
) -> None:
    jammed, free = threading.Event(), threading.Event()

    @queue("work").actor(budget=BUDGET)
    def jam() -> None:
        jammed.set()
        assert free.wait(25)

    @queue("work").actor(budget=BUDGET)
    def sweep() -> None: ...

    firer = Firer(broker, leader, [SWEEP], Now())
    firer.pass_over()
    jam.send()
    worker.start()
    assert jammed.wait(10)
    for minutes in (10, 20):
        night.move_to(START + minutes * MINUTE)
        firer.pass_over()
    night.move_to(START + 25 * MINUTE)
    free.set()
    wait_until(lambda: not redis_client.hlen(keys.bodies(broker.namespace, "work")))
    by_hand.pause(broker, "sweep", by="maria", because="the jam is mended first")
    night.move_to(START + 30 * MINUTE)
    firer.pass_over()
    found = tonight(App(Path(), broker.actors, (LANE,), (SWEEP,)), broker, clock.now())  # type: ignore[arg-type]
    [track] = found.rows[0].tracks
    seen = [(one.kind, one.outcome, found.night.told(one.begins)) for one in track.segments]
    assert seen[:4] == [
        ("expired", "", "01:10"),
        ("held", "", "01:20"),
        ("ran", "done", "01:25"),
        ("paused", "", "01:25"),
    ]
    assert {kind for kind, *_ in seen[3:]} == {"paused"}, "it is to be paused until somebody resumes it"
