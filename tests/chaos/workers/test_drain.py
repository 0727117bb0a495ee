"""A lane is told to end, or its supervisor dies, under full load: nothing is lost and nobody is left behind."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from fleet.broker import keys
from tests.chaos.workers.journal import Run, reruns, spread
from tests.chaos.workers.lane import LOST_AFTER, ChaosLane, alive, kill, until_gone
from tests.waiting import wait_until
from tests.workers.conftest import Running

AHEAD = 0.25  # how much more than its threads a process holds here
GRACE = 10.0  # seconds beyond the drain in which a lane must be gone, as a container's stop grace allows
LOADS = [pytest.param(24, id="short"), pytest.param(200, id="full", marks=pytest.mark.soak)]


def _full_load(lane: ChaosLane, die: random.Random, threads: int, drain: float) -> tuple[Running, list[str]]:
    """A process with all its threads at work and more messages in hand, and an idle one of another supervisor.

    What runs is `soon`, `later` (both by gates of these names) or cannot be interrupted.
    """
    shape = {"processes": 1, "threads": threads, "prefetch": int(threads * (1 + AHEAD)), "drain": drain}
    first = lane.start(**shape)
    stubborn = threads // 10
    sent = [lane.send("stubborn", f"stubborn-{number}", 60) for number in range(stubborn)]
    for number in range(threads - stubborn):
        gate = die.choice(["soon", "later"])
        sent.append(lane.send("work", f"{gate}-{number}", 60, gate))
    lane.until_running(threads)
    sent += [lane.send("work", f"prefetched-{number}", 0.2) for number in range(int(threads * AHEAD))]
    waiting = keys.queue(lane.namespace, "jobs")
    wait_until(lambda: not lane.client.exists(waiting), 5)
    lane.start(**shape)
    return first, sent


def _nothing_lost(lane: ChaosLane, sent: list[str]) -> None:
    assert lane.journal.ended() == set(sent)
    assert (lane.dead(), lane.left()) == (set(), {})
    assert not [run for run in lane.journal.runs() if run.alone], "who was drained is no suspect"


def _until_gone(running: Running, children: set[int], seconds: float) -> float:
    """Wait for the supervisor's end with code 0 and for its children's; when the supervisor was seen to be gone."""
    assert running.process.wait(seconds) == 0
    at = time.monotonic()
    assert not any(alive(pid) for pid in children), "no child is left"
    return at


@pytest.mark.alone
@pytest.mark.timeout(300)
@pytest.mark.parametrize("threads", LOADS)
def test_a_drain_under_full_load_loses_nothing_and_keeps_nothing_waiting_that_another_can_run(
    threads: int, lane: ChaosLane, die: random.Random, say: Callable[[str], None]
) -> None:
    drain = 2.0
    first, sent = _full_load(lane, die, threads, drain)
    children = first.children()
    at = time.monotonic()
    first.process.terminate()
    lane.open("soon")
    gone = _until_gone(first, children, drain + GRACE)
    lane.open("later")
    lane.until_settled(40)

    _nothing_lost(lane, sent)
    prefetched = [runs[0].begun - at for runs in lane.journal.by_id("prefetched").values()]
    cut = reruns(lane.journal.by_id())
    waited = [later.begun - (run.left_at or gone) for run, later in cut]
    say(f"gone after {gone - at:.2f} s; prefetched began elsewhere after {spread(prefetched)}; cut: {spread(waited)}")
    assert {run.name.split("-")[0]: run.left for run, _ in cut} == {"later": "Shutdown", "stubborn": None}
    assert all(at + drain - 0.2 <= run.left_at for run, _ in cut if run.left_at), "none before its drain was over"
    assert min(prefetched) > 0 and max(prefetched) <= 1.0
    assert max(waited) <= 1.0


@pytest.mark.alone
@pytest.mark.timeout(300)
@pytest.mark.parametrize("threads", LOADS)
def test_a_second_signal_ends_a_drain_at_once_and_loses_nothing(
    threads: int, lane: ChaosLane, die: random.Random, say: Callable[[str], None]
) -> None:
    first, sent = _full_load(lane, die, threads, drain=60)
    children = first.children()
    first.process.terminate()
    wait_until(lambda: first.logged("lane_draining"), 5)
    wait_until(lambda: lane.journal.ended("prefetched"), 5)
    at = time.monotonic()
    first.process.terminate()
    gone = _until_gone(first, children, 10)
    lane.open("soon")
    lane.open("later")
    lane.until_settled(40)

    _nothing_lost(lane, sent)
    waited = [later.begun - at for _, later in reruns(lane.journal.by_id())]
    say(f"gone after {gone - at:.2f} s; what ran began elsewhere after {spread(waited)}")
    assert gone - at <= 2.0
    assert len(waited) == threads and max(waited) <= 2.0


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_a_killed_supervisor_leaves_no_child_after_a_second_and_its_messages_run_elsewhere(
    lane: ChaosLane, say: Callable[[str], None]
) -> None:
    first = lane.start(processes=3, threads=3, lost_after=LOST_AFTER)
    sent = [lane.send("stubborn", "holds-the-gil", 60, True)]
    lane.until_running(1)
    sent += [lane.send("work", f"work-{number}", 60, "go") for number in range(4)]
    lane.until_running(3)
    holder = lane.journal.runs("holds")[0].pid
    heir = lane.start(processes=1, threads=8, lost_after=LOST_AFTER)
    children = first.children()
    os.kill(min(children - {holder}), signal.SIGSTOP)
    at = kill(first.process.pid)
    gone = until_gone(children, 5)
    lane.open("go")
    lane.until_settled(LOST_AFTER + 40)

    back = max(later.begun - at for _, later in reruns(lane.journal.by_id()))
    say(f"{len(children)} children gone after {gone - at:.2f} s; their jobs ran again within {back:.2f} s")
    assert gone - at <= 1.0
    assert lane.journal.ended() == set(sent)
    assert all(run.pid in heir.children() for run in lane.journal.runs() if run.ended)
    assert lane.left() == {}
    assert lane.dead() == set()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("processes", "jobs"), [pytest.param(2, 60, id="short"), pytest.param(4, 1_000, id="full", marks=pytest.mark.soak)]
)
def test_a_hangup_replaces_the_children_one_by_one_on_new_code_and_no_job_runs_twice(
    processes: int, jobs: int, lane: ChaosLane, die: random.Random, say: Callable[[str], None]
) -> None:
    first = lane.start(processes=processes, threads=4, drain=20.0)
    before = set(lane.children())
    sent = [lane.send("work", f"job-{number}", die.uniform(0, 1.5)) for number in range(jobs)]
    lane.until_running(processes * 4)
    code = lane.app / "actors" / "jobs.py"
    code.write_text(code.read_text().replace('RELEASE = "1"', 'RELEASE = "2"'))
    first.process.send_signal(signal.SIGHUP)
    seen = [before]
    ends = time.monotonic() + 60
    while seen[-1] & before:
        assert time.monotonic() < ends, f"still there: {seen[-1] & before}"
        if (now := set(lane.children())) != seen[-1]:
            seen.append(now)
    lane.until_settled(120)

    say(f"{processes} children replaced, seen at once: {[len(pids) for pids in seen]}")
    assert all(len(later - earlier) <= 1 for earlier, later in pairwise(seen)), "one by one"
    assert max(len(pids) for pids in seen) <= processes + 1
    assert first.process.poll() is None
    runs = lane.journal.by_id()
    assert set(runs) == set(sent) == lane.journal.ended()
    assert {len(of_one) for of_one in runs.values()} == {1}
    assert _releases(lane.journal.runs(), before) == {True: {"1"}, False: {"2"}}
    assert (lane.dead(), lane.left()) == (set(), {})


def test_a_suspect_that_waits_behind_a_hangup_runs_on_new_code_though_one_ran_on_the_old(lane: ChaosLane) -> None:
    first = lane.start(processes=1, threads=1, prefetch=1)
    held = lane.send("work", "held", 60, "go")
    _kill_the_child_that_runs(lane, "held")
    wait_until(lambda: len(lane.journal.runs("held")) == 2, 30)
    before = wait_until(lambda: set(lane.children()), 30)
    code = lane.app / "actors" / "jobs.py"
    code.write_text(code.read_text().replace('RELEASE = "1"', 'RELEASE = "2"'))
    first.process.send_signal(signal.SIGHUP)
    wait_until(lambda: lane.children() and not before & set(lane.children()), 30)
    later = lane.send("work", "later", 60, "go")
    _kill_the_child_that_runs(lane, "later")
    wait_until(lambda: lane.client.exists(keys.suspects(lane.namespace, "jobs")), 30)
    lane.open("go")
    lane.until_settled(60)

    runs = lane.journal.by_id()
    assert [(run.alone, run.release) for run in runs[held]] == [(False, "1"), (True, "1")]
    assert [(run.alone, run.release) for run in runs[later]] == [(False, "2"), (True, "2")]
    assert lane.journal.ended() == {held, later}
    assert (lane.dead(), lane.left()) == (set(), {})


def _kill_the_child_that_runs(lane: ChaosLane, name: str) -> None:
    (run,) = wait_until(lambda: lane.journal.runs(name), 30)
    kill(run.pid)


def _releases(runs: list[Run], before: set[int]) -> dict[bool, set[str]]:
    """Which code the old children ran, and which the new ones."""
    return {old: {run.release for run in runs if (run.pid in before) == old} for old in (True, False)}
