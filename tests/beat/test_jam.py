"""A lane that is jammed past an entry's `expires`: what waited is dropped, and the next run takes every row it left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from dramatiq import Broker, MessageProxy, Middleware

from beat.fire import Firer
from beat.leader import Leader
from beat.now import Now
from fleet import Budget, Entry, Lane, Retry, queue, wire
from fleet import app as application
from fleet.broker import FleetBroker, keys
from fleet.settings import Settings
from fleet.workers.worker import FleetWorker
from tests.beat.beaten import MINUTE, SECOND, START, Beaten, StandingNight
from tests.waiting import wait_until

SWEEP = Entry("sweep", every=10 * MINUTE, expires=10 * MINUTE, because="a test needs slots")
BUDGET = Budget(timedelta(seconds=30), timedelta(seconds=60), because="the jam lasts as long as the test wants")
RETRY = Retry(attempts=1, first=SECOND, longest=SECOND)
LANE = Lane("lane", ("work",), waits_for="a test", processes=1, threads=1, budget=BUDGET, retry=RETRY)


class Ends(Middleware):
    """How each slot's message ended: (minutes after START, whether its body ran)."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        self._note(message, "expired" if message.options.get("expired") else "skipped")

    def after_process_message(self, broker: Broker, message: MessageProxy, **ended: Any) -> None:
        self._note(message, "failed" if ended.get("exception") else "done")

    def _note(self, message: MessageProxy, how: str) -> None:
        if wire.SLOT in message.options:
            self.seen.append(((wire.from_ms(message.options[wire.SLOT]) - START) // MINUTE, how))


@pytest.fixture
def lane(broker: FleetBroker, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FleetWorker]:
    """One thread that works the queue of the entry, and of whatever jams it."""
    settings = Settings(redis_url=redis_url, namespace=broker.namespace)
    monkeypatch.setattr(application, "settings", lambda: settings)
    broker.lanes = {"work": LANE}
    worker = FleetWorker(broker, worker_timeout=50, worker_threads=1)
    yield worker
    worker.stop()


def test_a_slot_that_waited_past_its_window_ends_expired_and_the_next_run_takes_every_row_it_left(
    night: StandingNight,
    broker: FleetBroker,
    leader: Leader,
    beaten: Beaten,
    lane: FleetWorker,
    redis_client: redis.Redis,
) -> None:
    jammed, free = threading.Event(), threading.Event()
    rows: dict[int, str] = {}
    taken: list[list[int]] = []
    ends = Ends()
    broker.add_middleware(ends)

    @queue("work").actor(budget=BUDGET)
    def jam() -> None:
        jammed.set()
        assert free.wait(25)

    @queue("work").actor(budget=BUDGET)
    def sweep() -> None:
        taken.append([row for row, status in rows.items() if status == "open"])
        rows.update(dict.fromkeys(taken[-1], "done"))

    firer = Firer(broker, leader, [SWEEP], Now())
    firer.pass_over()
    jam.send()
    lane.start()
    assert jammed.wait(10)
    for slot in (1, 2, 3):
        rows[slot] = "open"
        night.move_to(START + slot * 10 * MINUTE)
        firer.pass_over()
    free.set()
    wait_until(lambda: not redis_client.hlen(keys.bodies(broker.namespace, "work")))
    fired = [(line.first - START) // MINUTE for line in beaten.lines("sweep") if line.verdict == "fired"]
    assert fired == [9, 19, 29], "the beat goes on: each slot in its window is sent"
    assert ends.seen == [(9, "expired"), (19, "expired"), (29, "done")]
    assert taken == [[1, 2, 3]] and set(rows.values()) == {"done"}
    assert redis_client.zcard(keys.dead(broker.namespace, "work")) == 0, "what is late is no dead letter"
