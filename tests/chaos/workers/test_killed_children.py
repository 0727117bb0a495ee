"""Processes die at random and all the time: every job ends, and none is blamed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from tests.chaos.workers.journal import reruns, spread
from tests.chaos.workers.lane import ChaosLane, kill
from tests.waiting import wait_until

EVERY = 1.0
RESTART = (
    5.0  # seconds from SIGKILL until a job runs again; the aim is one, on a machine that is not short of processors
)
CHILDREN, THREADS = 4, 2


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("jobs", "kills", "settles_in"),
    [pytest.param(200, 4, 60, id="short"), pytest.param(2_000, 60, 600, id="full", marks=pytest.mark.soak)],
)
def test_every_job_ends_and_none_is_a_dead_letter_while_a_child_is_killed_every_second(
    jobs: int, kills: int, settles_in: float, lane: ChaosLane, die: random.Random, say: Callable[[str], None]
) -> None:
    lane.start(processes=CHILDREN, threads=THREADS)
    mean = EVERY * kills / jobs * CHILDREN * THREADS  # so that the work lasts as long as the killing
    sent = [lane.send("work", f"job-{number}", die.uniform(0.1, 1.9) * mean) for number in range(jobs)]
    killed = _kill_at_random(lane, die, kills)
    lane.until_settled(settles_in)

    by_id = lane.journal.by_id()
    restarts = [later.begun - killed[run.pid] for run, later in reruns(by_id) if run.over is None]
    alone = sum(run.alone for run in lane.journal.runs())
    say(f"killed {len(killed)}, from SIGKILL to restart: {spread(restarts)}, runs of suspects: {alone}")
    assert lane.journal.ended() == set(sent)
    assert max(restarts, default=0.0) <= RESTART, "what died was seen at once, not missed after a while"
    assert (lane.dead(), lane.left()) == (set(), {})
    assert len(killed) >= kills * 0.8, "somebody was there to be killed"
    assert {run.pid for run, _ in reruns(by_id)} <= set(killed), "nothing runs again whose process was not killed"


def _kill_at_random(lane: ChaosLane, die: random.Random, kills: int) -> dict[int, float]:
    """SIGKILL one child (never a suspect's) a second; who, and when."""
    killed: dict[int, float] = {}
    begun = time.monotonic()
    for number in range(1, kills + 1):
        wait_until(lambda: time.monotonic() >= begun + number * EVERY, EVERY + 5)  # noqa: B023
        living = [pid for pid in lane.children() if pid not in killed]
        if living:
            victim = die.choice(living)
            killed[victim] = kill(victim)
    return killed
