"""Processes that somebody stops for long: what they held runs elsewhere, and nothing they do afterwards counts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from tests.chaos.workers.journal import Run
from tests.chaos.workers.lane import LOST_AFTER, ChaosLane, until_gone
from tests.waiting import wait_until

ENDS_WITHIN = 4.0  # seconds beyond the silence that makes a process lost, for a new one to start


def _three_running(lane: ChaosLane) -> tuple[int, set[str]]:
    """Two jobs that end well and one that fails, each in its first run, in one process; which, and their ids."""
    lane.start(processes=1, threads=3, prefetch=3, lost_after=LOST_AFTER)
    ids = {lane.send("work", f"work-{number}", 120, "go") for number in range(2)}
    ids.add(lane.send("fail_once", "failing", "go"))
    lane.until_running(3)
    return lane.journal.runs()[0].pid, ids


def _elsewhere(lane: ChaosLane, first: int) -> list[Run]:
    return wait_until(lambda: (runs := [run for run in lane.journal.runs() if run.pid != first])[2:] and runs, 60)


def _all_end_in_their_second_run(lane: ChaosLane, ids: set[str]) -> None:
    lane.open("go")
    lane.until_settled(20)
    by_id = lane.journal.by_id()
    assert {len(by_id[id]) for id in ids} == {2}
    assert all(by_id[id][1].ended and not by_id[id][1].alone for id in ids)
    assert (lane.dead(), lane.left()) == (set(), {})


def test_a_child_that_stays_stopped_is_killed_and_what_it_held_runs_elsewhere_unmarked(
    lane: ChaosLane, say: Callable[[str], None]
) -> None:
    first, ids = _three_running(lane)
    at = time.monotonic()
    os.kill(first, signal.SIGSTOP)
    waited = max(run.begun for run in _elsewhere(lane, first)) - at
    say(f"running elsewhere {waited:.2f} s after SIGSTOP (lost after {LOST_AFTER} s)")
    assert waited <= LOST_AFTER + ENDS_WITHIN
    until_gone([first], 5)
    _all_end_in_their_second_run(lane, ids)


def test_what_a_host_held_that_stood_still_runs_elsewhere_and_nothing_it_does_afterwards_counts(
    lane: ChaosLane, say: Callable[[str], None]
) -> None:
    first, ids = _three_running(lane)
    host = [lane.started[0].process.pid, first]
    lane.start(processes=1, threads=3, prefetch=3, lost_after=LOST_AFTER)
    at = time.monotonic()
    for pid in host:
        os.kill(pid, signal.SIGSTOP)
    waited = max(run.begun for run in _elsewhere(lane, first)) - at
    say(f"running elsewhere {waited:.2f} s after SIGSTOP (lost after {LOST_AFTER} s)")
    assert waited <= LOST_AFTER + ENDS_WITHIN

    lane.open(f"go-{first}")
    for pid in reversed(host):
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not [run for run in lane.journal.running() if run.pid == first], 10)
    # The other host has no thread free: when this one has ended here, so have the ends before it.
    after = lane.send("work", "after", 0)
    wait_until(lambda: after in lane.journal.ended(), 10)
    assert lane.journal.by_id()[after][0].pid == first
    wait_until(lambda: after not in lane.held(), 5)
    assert lane.held() == ids, "the ends of their first runs changed nothing"
    assert lane.dead() == set()
    _all_end_in_their_second_run(lane, ids)
