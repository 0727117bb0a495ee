"""What a child counted outlives it, in one file for all that are gone."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

from prometheus_client.mmap_dict import MmapedDict, mmap_key

from fleet.workers.rooms import _add
from tests.waiting import wait_until
from tests.workers.conftest import Running
from tests.workers.test_supervisor import metric


def test_what_children_counted_is_still_counted_when_they_are_gone_and_their_files_are_not_kept(
    supervise: Callable[..., Running],
) -> None:
    lane = supervise()
    lane.gate.touch()
    folders: set[Path] = set()
    pids = []
    for number in (1, 2):
        lane.ready(number)
        (pid,) = lane.children()
        mapped = re.findall(r"/dev/shm/\S+", Path(f"/proc/{lane.process.pid}/maps").read_text())
        folders |= {Path(name).parent / "metrics" for name in mapped}
        lane.send(f"job-{number}")
        wait_until(lambda: len(lane.events("end")) == number, 10)  # noqa: B023
        url = re.findall(r"http://127\.0\.0\.1:\d+/metrics", lane.log.read_text())[0]
        counted = r'fleet_messages_total\{actor="wait",outcome="done",queue="jobs"\}'
        wait_until(lambda: metric(url, counted) == number, 5)  # noqa: B023
        os.kill(pid, signal.SIGKILL)
        pids.append(pid)
    wait_until(lambda: len(lane.logged("worker_died")) == 2, 10)
    wait_until(lambda: metric(url, counted) == 2, 5)
    (folder,) = folders
    left = {file.name for file in folder.glob("*.db")}
    assert "counter_gone.db" in left
    assert not [name for name in left for pid in pids if str(pid) in name]


def test_a_file_that_a_child_spoilt_as_it_died_is_left_out_and_removed(tmp_path: Path) -> None:
    sums, good, bad = tmp_path / "counter_gone.db", tmp_path / "counter_1.db", tmp_path / "counter_2.db"
    key = mmap_key("jobs", "jobs_total", [], [], "help")
    counts = MmapedDict(str(good))
    counts.write_value(key, 3.0, 0.0)
    counts.close()
    bad.write_bytes((1000).to_bytes(4, "little") + b"\xff" * 60)
    for gone in (good, bad):
        _add(gone, sums)
        assert not gone.exists()
    assert [(key, 3.0)] == [(name, value) for name, value, *_ in MmapedDict.read_all_values_from_file(str(sums))]
