"""A lane that replaces its child again and again keeps nothing of those that went."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.chaos.workers.lane import ChaosLane, alive, boards
from tests.waiting import wait_until

MEMORY_SLACK = 4 << 20
SLACK = 4  # threads, descriptors and the like come and go while one lives
AT_REST = 1.0  # seconds within which a child that starts makes a file, and one that goes takes one away
SHORT_LIVED = 120  # seconds until a key expires that may stand for each child that went


@dataclass(frozen=True)
class Sample:
    """What a supervisor and its namespace hold at one moment."""

    descriptors: int
    threads: int
    files: frozenset[str]
    keys: frozenset[str]
    memory: int

    def __str__(self) -> str:
        return (
            f"{self.descriptors} descriptors, {self.threads} threads, {len(self.files)} files, "
            f"{len(self.keys)} keys, {self.memory / (1 << 20):.1f} MiB"
        )


def _at_rest(lane: ChaosLane, supervisor: psutil.Process) -> Sample:
    """Once the next child has all its files and the last one has none."""

    def unchanged() -> bool:
        before = _private_files(lane, supervisor)
        time.sleep(AT_REST)
        return _private_files(lane, supervisor) == before

    wait_until(unchanged)
    return _sample(lane, supervisor)


def _sample(lane: ChaosLane, supervisor: psutil.Process) -> Sample:
    with supervisor.oneshot():
        return Sample(
            supervisor.num_fds(),
            supervisor.num_threads(),
            frozenset(str(path) for path in _private_files(lane, supervisor)),
            frozenset(_lasting_keys(lane)),
            supervisor.memory_info().rss,
        )


def _private_files(lane: ChaosLane, supervisor: psutil.Process) -> set[Path]:
    """Files of its temporary folder, and of the folders in shared memory that it has something mapped from."""
    mapped = boards(supervisor.pid)
    folders = {path.parent for path in mapped} - {Path("/dev/shm")}
    return mapped | {path for folder in [*folders, lane.temporary] for path in folder.rglob("*") if path.is_file()}


def _lasting_keys(lane: ChaosLane) -> list[str]:
    found = list(lane.client.scan_iter(f"{lane.namespace}:*", count=1000))
    return [key.decode() for key in found if not 0 <= lane.client.ttl(key) <= SHORT_LIVED]


@pytest.mark.parametrize(
    ("children", "every"),
    [
        pytest.param(8, 2, id="short"),  # six go between the first sample and the last: one kept of each is above SLACK
        pytest.param(1_000, 100, id="full", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_recycled_children_leave_no_files_descriptors_keys_or_memory_behind(
    children: int, every: int, lane: ChaosLane, say: Callable[[str], None]
) -> None:
    running = lane.start(processes=1, threads=1, prefetch=1, max_jobs=1)
    supervisor = psutil.Process(running.process.pid)
    samples = []
    for number in range(1, children + 1):
        id = lane.send("work", f"job-{number}", 0)
        run = wait_until(lambda: lane.journal.by_id().get(id) or [], 30)[0]  # noqa: B023
        wait_until(lambda: not alive(run.pid), 30)  # noqa: B023
        if number % every == 0:
            wait_until(lambda: len(lane.children()) == 1, 10)
            samples.append(_at_rest(lane, supervisor))
            say(f"after {number} children: {samples[-1]}")
    lane.until_settled(10)

    # Each job was sent when the process of the one before was gone, so none ran two; process ids come again meanwhile.
    assert len(lane.journal.runs()) == children == len(lane.journal.ended())
    assert (lane.dead(), lane.left()) == (set(), {})
    first, last = samples[0], samples[-1]
    assert last.descriptors <= first.descriptors + SLACK
    assert last.threads <= first.threads + SLACK
    assert len(last.files) <= len(first.files) + SLACK, sorted(last.files - first.files)
    assert len(last.keys) <= len(first.keys) + SLACK, sorted(last.keys - first.keys)
    assert last.memory <= first.memory + MEMORY_SLACK
