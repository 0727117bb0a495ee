"""A job that hangs in C, where nothing can be raised, among neighbours that do nothing wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from fleet.broker import keys
from tests.chaos.workers.journal import Run
from tests.chaos.workers.lane import QUEUE, ChaosLane, kill, until_gone
from tests.waiting import wait_until

NEIGHBOURS = 20
OVERRUN = 2.0  # seconds after its hard budget in which a job must have its end

BUDGETS = [pytest.param(2.0, id="short"), pytest.param(5.0, id="full", marks=pytest.mark.soak)]


@contextmanager
def watching(lane: ChaosLane) -> Iterator[dict[str, float]]:
    """When each dead letter was first seen, by this process's own look every few milliseconds."""
    seen: dict[str, float] = {}
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.005):
            for id in lane.dead():
                seen.setdefault(id, time.monotonic())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


@dataclass(frozen=True)
class Hung:
    """What became of the job that hung: its id, its one run, and the seconds from its hard budget to its letter."""

    id: str
    run: Run
    overrun: float


def _hang(lane: ChaosLane, kind: str, hard: float, neighbour_seconds: float) -> Hung:
    """Let one job hang among its neighbours, in one process, until all is settled."""
    lane.start(processes=1, threads=NEIGHBOURS + 1, hung_hard=hard)
    with watching(lane) as seen:
        for number in range(NEIGHBOURS):
            lane.send("work", f"neighbour-{number}", neighbour_seconds)
        lane.until_running(NEIGHBOURS)
        id = lane.send("hang", "hung", kind, hard + OVERRUN)
        lane.until_settled(hard + 30)
    (run,) = lane.journal.by_id()[id]
    return Hung(id, run, seen[id] - run.begun - hard)


def _is_terminal(lane: ChaosLane, hung: Hung) -> None:
    assert lane.dead() == {hung.id}
    assert lane.letters()[hung.id]["reason"] == "hard budget"
    until_gone([hung.run.pid], 10)
    (loss,) = lane.journal.losses()
    assert (loss.id, loss.reason, loss.after) == (hung.id, "hard-budget", True)
    assert loss.pid != hung.run.pid
    assert lane.left() == {}


@pytest.mark.alone
@pytest.mark.parametrize("hard", BUDGETS)
@pytest.mark.parametrize(("kind", "beyond"), [("sleep", 1.0), ("socket", 1.0), ("late", 3.0)])
def test_a_job_hung_without_the_gil_is_dead_within_2_s_and_its_neighbours_finish_in_their_first_run(
    kind: str, beyond: float, hard: float, lane: ChaosLane, say: Callable[[str], None]
) -> None:
    hung = _hang(lane, kind, hard, neighbour_seconds=hard + beyond)
    say(f"dead letter {hung.overrun:.2f} s after its hard budget")
    assert 0 <= hung.overrun <= OVERRUN
    assert (hung.run.ended is None) == (kind != "late"), "what comes back late finds its end written"
    neighbours = lane.journal.by_id("neighbour")
    assert [len(runs) for runs in neighbours.values()] == [1] * NEIGHBOURS
    assert lane.journal.ended("neighbour") == set(neighbours)
    _is_terminal(lane, hung)


@pytest.mark.alone
@pytest.mark.parametrize("hard", BUDGETS)
def test_a_job_hung_with_the_gil_is_killed_within_2_s_and_its_neighbours_finish_in_their_second_run(
    hard: float, lane: ChaosLane, say: Callable[[str], None]
) -> None:
    died: list[float] = []
    watcher = threading.Thread(target=lambda: died.append(until_gone([_pid_of_hung(lane)], hard + 20)))
    watcher.start()
    hung = _hang(lane, "gil", hard, neighbour_seconds=3.0)
    watcher.join()
    killed = died[0] - hung.run.begun - hard
    neighbours = lane.journal.by_id("neighbour")
    waited = max(again.begun - died[0] for _, again in neighbours.values())
    say(f"letter {hung.overrun:.2f} s, SIGKILL {killed:.2f} s after its hard budget; neighbours {waited:.2f} s later")
    assert 0 <= hung.overrun <= OVERRUN and killed <= OVERRUN
    for first, second in neighbours.values():
        assert first.pid == hung.run.pid and first.over is None
        assert second.ended is not None and not second.alone, "it is no suspect"
    _is_terminal(lane, hung)


def test_a_hung_job_whose_letter_a_broken_key_refuses_gets_it_once_it_is_mended_and_holds_up_no_reaping(
    lane: ChaosLane,
) -> None:
    running = lane.start(processes=2, threads=1, hung_hard=1.0)
    key = keys.dead_details(lane.namespace, QUEUE)
    lane.client.set(key, "no longer what it was")
    id = lane.send("hang", "hung", "sleep", 0)
    lane.send("work", "neighbour", 60, "gate")
    lane.until_running(2)
    wait_until(lambda: running.logged("not_condemned_yet"), 20)
    kill(lane.journal.runs("neighbour")[0].pid)
    wait_until(lambda: len(lane.journal.runs("neighbour")) == 2, 20)
    lane.client.delete(key)
    lane.open("gate")
    lane.until_settled(30)
    assert lane.letters()[id]["reason"] == "hard budget"
    assert [run.over is None for run in lane.journal.runs("neighbour")] == [True, False]


def _pid_of_hung(lane: ChaosLane) -> int:
    return wait_until(lambda: lane.journal.runs("hung"), 20)[0].pid
