"""A janitor reaps a worker only after it has itself seen that it does not move, and only if no supervisor has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from fleet import deadline, janitor
from fleet.broker import keys
from fleet.broker.reaper import reap
from fleet.janitor import Measured
from fleet.workers.silent import SilentWorkers
from tests.broker.station import QUEUE, Station
from tests.broker.turns import Turns

LOST_AFTER = timedelta(seconds=1)
pytestmark = pytest.mark.alone  # a machine that stands still for a third of that begins every silence anew


@pytest.fixture
def station(redis_url: str, namespace: str) -> Iterator[Station]:
    """One message, held by a worker that is gone."""
    made = Station(redis_url, namespace)
    made.actor(lambda: None, actor_name="note").send()
    assert worker(made, "gone").take(1)
    yield made
    made.stop()


def worker(station: Station, name: str) -> Turns:
    return Turns(station.broker.client, station.broker.own_scripts, station.namespace, name)


def chore(station: Station) -> SilentWorkers:
    return SilentWorkers(station.broker, [QUEUE], lost_after=LOST_AFTER)


class Lives(threading.Thread):
    """A worker whose beat moves several times a second until the block ends."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns, self._over = turns, threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.1):
            self._turns.take()

    def __enter__(self) -> None:
        self._turns.take()
        self.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def test_a_worker_that_nobody_reaped_is_reaped_and_one_that_moves_is_not(station: Station) -> None:
    with Lives(worker(station, "lives")):
        done = janitor.run("reap_lost_workers", [chore(station)])
    assert (done.scanned, done.stuck, done.recovered, done.skipped_live) == (2, 1, 1, 1)
    assert done.oldest is not None and done.oldest >= LOST_AFTER
    assert list(station.places().values()) == [["waiting"]]
    assert station.broker.client.hkeys(keys.workers(station.namespace)) == [b"lives"]


def test_where_everybody_moves_a_pass_does_not_wait_for_anybodys_silence(station: Station) -> None:
    reap(station.broker.client, station.broker.own_scripts, station.namespace, "gone", [QUEUE])
    looks = SilentWorkers(station.broker, [QUEUE], lost_after=timedelta(hours=1))
    with Lives(worker(station, "lives")):
        assert looks.measure() == Measured(1, 0, 1)


def test_a_worker_that_a_supervisor_reaps_meanwhile_is_left_to_it(station: Station) -> None:
    first, second = chore(station), chore(station)
    assert first.measure().stuck == second.measure().stuck == 1
    (found,), (found_too,) = first.find(), second.find()
    assert (first.mend(found), second.mend(found_too)) == (1, 0)
    assert list(station.places().values()) == [["waiting"]]


def test_a_worker_that_moves_at_the_last_moment_is_not_reaped(station: Station) -> None:
    looks, back = chore(station), worker(station, "gone")
    looks.measure()
    (found,) = looks.find()
    back._number = 1
    back.take()
    assert looks.mend(found) == 0
    assert list(station.places().values()) == [["gone"]]


def test_a_preview_reaps_nobody(station: Station) -> None:
    seen, found = janitor.preview([chore(station)])
    assert (seen.stuck, [stuck.subject for stuck in found]) == (1, ["worker gone"])
    assert list(station.places().values()) == [["gone"]]


def test_a_pass_without_any_worker_is_over_at_once(station: Station) -> None:
    reap(station.broker.client, station.broker.own_scripts, station.namespace, "gone", [QUEUE])
    assert SilentWorkers(station.broker, [QUEUE], lost_after=timedelta(hours=1)).measure() == Measured(0, 0, 0)


def test_within_a_job_a_pass_looks_on_for_half_of_its_budget_at_most(station: Station) -> None:
    looks = SilentWorkers(station.broker, [QUEUE], lost_after=timedelta(seconds=2))
    assert deadline.run_within(timedelta(seconds=2), looks.measure) == Measured(1, 0, 1)
