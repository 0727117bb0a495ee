"""One job that kills its process among many that do nothing wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from fleet.broker.scripts import Scripts
from fleet.workers.watch import Watch
from tests.chaos.workers.journal import Run, beside
from tests.chaos.workers.lane import LOST_AFTER, ChaosLane, alive, boards, until_gone
from tests.waiting import wait_until

CAUSES = {
    "sigkill": "SIGKILL",
    "segfault": "SIGSEGV",
    "exit": "exit code 3",
    "exit0": "exit code 0",
    "memory": "memory over kill_rss",
}
KILL_RSS = 400 << 20  # the poison takes 512 MiB
SIZES = [
    pytest.param(5, 60, id="short"),
    pytest.param(200, 600, id="full", marks=pytest.mark.soak),
]


@pytest.fixture
def another_lane(lane: ChaosLane) -> Iterator[None]:
    """The part of another lane's supervisor that finds who is gone; it goes on looking while this lane is down."""
    watch = Watch(
        lane.client,
        Scripts(lane.client),
        lane.namespace,
        lambda: (),
        lambda: ["another"],
        trim=lambda _: 0,
        lost_after=timedelta(seconds=LOST_AFTER),
        isolating=True,
    )
    watch.start()
    yield
    watch.stop()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("in_flight", "settles_in"), SIZES)
@pytest.mark.parametrize("kind", CAUSES)
def test_a_poison_is_a_dead_letter_after_two_processes_and_its_neighbours_finish(
    kind: str, in_flight: int, settles_in: float, lane: ChaosLane, say: Callable[[str], None]
) -> None:
    options = {"kill_rss": KILL_RSS} if kind == "memory" else {}
    lane.start(processes=1, threads=in_flight, prefetch=in_flight, **options)
    neighbours = [lane.send("work", f"neighbour-{number}", 60, "go") for number in range(in_flight - 1)]
    poison = lane.send("poison", "poison", kind, "strike")
    lane.until_running(in_flight)
    assert len({run.pid for run in lane.journal.runs()}) == 1, "all in one process"
    lane.open("strike")
    until_gone({run.pid for run in lane.journal.runs()}, 20)
    lane.open("go")  # only now, so that each was in its body when the process died
    lane.until_settled(settles_in)

    assert lane.dead() == {poison}
    assert lane.letters()[poison]["reason"] == f"poison: killed 2 processes ({CAUSES[kind]}, {CAUSES[kind]})"
    assert lane.left() == {}
    assert lane.journal.ended() == set(neighbours)
    _two_processes_died(lane, poison)
    again = [runs[1].begun for runs in lane.journal.by_id("neighbour").values() if len(runs) == 2]
    say(f"{len(again)} neighbours ran again, the last {max(again) - min(again):.1f} s after the first")


def _two_processes_died(lane: ChaosLane, poison: str) -> None:
    first, second = lane.journal.by_id()[poison]
    assert first.pid != second.pid
    assert second.alone and not beside(second, lane.journal.runs())
    assert {run.pid for run in lane.journal.running()} == {first.pid, second.pid}, "no other process died"
    assert max(len(runs) for runs in lane.journal.by_id("neighbour").values()) <= 2


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "in_flight", "settles_in", "reaped_by"),
    [
        pytest.param("lane", 4, 90, "itself", id="lane-short", marks=pytest.mark.soak),
        pytest.param("lane", 4, 90, "another lane", id="lane-reaped-by-another"),
        pytest.param("lane", 20, 300, "itself", id="lane-full", marks=pytest.mark.soak),
        pytest.param("parent", 20, 300, "itself", id="parent-full", marks=pytest.mark.soak),
    ],
)
def test_a_poison_that_takes_the_supervisor_with_it_ends_alone_and_then_is_a_dead_letter(
    kind: str,
    in_flight: int,
    settles_in: float,
    reaped_by: str,
    lane: ChaosLane,
    say: Callable[[str], None],
    request: pytest.FixtureRequest,
) -> None:
    if reaped_by == "another lane":
        request.getfixturevalue("another_lane")
    shape = {"processes": 2, "threads": in_flight, "lost_after": LOST_AFTER}
    running = lane.start(**shape)
    left_behind = boards(running.process.pid)
    neighbours = [lane.send("patient", f"neighbour-{number}", "go", 2.0) for number in range(in_flight - 1)]
    poison = lane.send("poison", "poison", kind, "strike")
    lane.until_running(in_flight)
    lane.open("strike")
    until_gone({run.pid for run in lane.journal.runs()}, 20)
    lane.open("go")
    starts = 1
    for _ in range(10):
        wait_until(lambda: running.process.poll() is not None or poison in lane.dead(), settles_in)  # noqa: B023
        if poison in lane.dead():
            break
        running = lane.start(**shape)  # as an init system does
        starts += 1
    lane.until_settled(settles_in)

    runs: list[Run] = lane.journal.by_id()[poison]
    say(f"the poison ran {len(runs)} times, the lane was started {starts} times")
    assert lane.dead() == {poison}
    assert lane.letters()[poison]["reason"].startswith("poison: killed "), lane.letters()
    assert lane.left() == {}
    assert lane.journal.ended() == set(neighbours)
    # Nobody saw what the first three died in, so they are losses; then it runs alone, at first beside others that do.
    assert [run.alone for run in runs] == [False] * 3 + [True] * (len(runs) - 3)
    assert len(runs) <= 8
    assert not beside(runs[-1], lane.journal.runs()), "it ended alone"
    assert not any(alive(run.pid) for run in runs)
    assert left_behind and not any(path.exists() for path in left_behind), "the next supervisor removes them"
