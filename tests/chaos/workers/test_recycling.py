"""A lane that replaces its child again and again keeps nothing of those that went."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.chaos.workers.lane import ChaosLane, alive
from tests.waiting import wait_until

MEMORY_SLACK = 4 << 20
SLACK = 4  # of what a child has while it lives; samples are taken while one starts


@dataclass(frozen=True)
class Sample:
    """What a supervisor and its namespace hold at one moment."""

    descriptors: int
    threads: int
    files: int
    keys: int
    memory: int


def _sample(lane: ChaosLane, supervisor: psutil.Process) -> Sample:
    with supervisor.oneshot():
        return Sample(
            supervisor.num_fds(),
            supervisor.num_threads(),
            len(_private_files(lane, supervisor)),
            sum(1 for _ in lane.client.scan_iter(f"{lane.namespace}:*", count=1000)),
            supervisor.memory_info().rss,
        )


def _private_files(lane: ChaosLane, supervisor: psutil.Process) -> set[Path]:
    """Files of its temporary folder, and of the folders in shared memory that it has something mapped from."""
    mapped = re.findall(r"/dev/shm/\S+", Path(f"/proc/{supervisor.pid}/maps").read_text())
    folders = {Path(name).parent for name in mapped} - {Path("/dev/shm")}
    found = {Path(name) for name in mapped}
    for folder in [*folders, lane.temporary]:
        found |= {path for path in folder.rglob("*") if path.is_file()}
    return found


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("children", "every"),
    [pytest.param(12, 4, id="short"), pytest.param(1_000, 100, id="full", marks=pytest.mark.soak)],
)
def test_recycled_children_leave_no_files_descriptors_keys_or_memory_behind(
    children: int, every: int, lane: ChaosLane, say: Callable[[str], None]
) -> None:
    running = lane.start(processes=1, threads=1, prefetch=1, max_jobs=1)
    supervisor = psutil.Process(running.process.pid)
    samples = []
    for number in range(children):
        id = lane.send("work", f"job-{number}", 0)
        run = wait_until(lambda: lane.journal.by_id().get(id), 30)[0]  # noqa: B023
        wait_until(lambda: not alive(run.pid), 30)  # noqa: B023
        if number % every == every - 1:
            wait_until(lambda: len(lane.children()) == 1, 10)
            samples.append(_sample(lane, supervisor))
            say(f"after {number + 1} children: {samples[-1]}")
    lane.until_settled(10)

    assert len({run.pid for run in lane.journal.runs()}) == children == len(lane.journal.ended())
    first, last = samples[0], samples[-1]
    for field in ("descriptors", "threads", "files", "keys"):
        assert getattr(last, field) <= getattr(first, field) + SLACK, field
    assert last.memory <= first.memory + MEMORY_SLACK
    assert (lane.dead(), lane.left()) == (set(), {})
