"""What a child counted outlives it, in one file a kind for all that are gone, however many there were."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from fleet import metrics
from fleet.workers import rooms as rooms_module
from fleet.workers.rooms import _JOINED, Rooms, _join, _remove_abandoned
from tests.waiting import wait_until
from tests.workers.conftest import Running
from tests.workers.test_supervisor import metric

# Forks one child after the other, that count as those of a lane do, and waits for the end of each.
CHILDREN = """
import os, sys
from prometheus_client import Counter, Gauge
from fleet import metrics
Counter("app_orders", "of the application's own, made at import").inc(0)
modes = ("all", "liveall", "min", "max", "sum", "mostrecent", "livesum", "livemostrecent")
gauges = [Gauge(f"app_{mode}", "a gauge", multiprocess_mode=mode) for mode in modes]
print(os.getpid(), flush=True)
for number, line in enumerate(sys.stdin):
    pid = os.fork()
    if pid == 0:
        metrics.begin_worker(["jobs"])
        for actor in ("one", "two"):
            metrics.message_ended("jobs", actor, "done")
            metrics.job_took("jobs", actor, 0.2)
        metrics.start_lag("jobs", 0.02)
        metrics.outbox(number, 0, 0.0)
        [gauge.set(number) for gauge in gauges]
        os._exit(0)
    os.waitpid(pid, 0)
    print(pid, flush=True)
"""


@pytest.fixture
def rooms() -> Iterator[Rooms]:
    made = Rooms()
    yield made
    made.remove()


@pytest.fixture
def recycle(rooms: Rooms) -> Iterator[Callable[[], int]]:
    """Runs one more child to its end; returns its process id, the parent's at the first call."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILDREN],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(rooms.metrics)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        int(parent.stdout.readline())

        def one() -> int:
            assert parent.stdin is not None and parent.stdout is not None
            parent.stdin.write("\n")
            parent.stdin.flush()
            return int(parent.stdout.readline())

        yield one
        parent.stdin.close()


def scraped(rooms: Rooms, own: Collector | None = None) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample of a scrape, none of them there twice."""
    families = list(
        text_string_to_metric_families(generate_latest(rooms.registry(own or CollectorRegistry())).decode())
    )
    assert len({family.name for family in families}) == len(families)
    samples = [sample for family in families for sample in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples)
    return found


def test_files_series_and_bytes_stay_bounded_however_many_children_were_recycled_and_no_counter_goes_back(
    rooms: Rooms, recycle: Callable[[], int]
) -> None:
    before: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    figures = []
    for number in range(1, 41):
        pid = recycle()
        for when in ("dead", "forgotten"):
            if when == "forgotten":
                rooms.count_in(pid)
            now = scraped(rooms)
            counted = {key: value for key, value in now.items() if re.search("_(total|count|sum|bucket)$", key[0])}
            assert all(counted.get(key, -1) >= value for key, value in before.items()), (number, when)
            before = counted
        files = list(rooms.metrics.glob("*.db"))
        figures.append((len(files), sum(file.stat().st_size for file in files), len(now)))
    assert before["fleet_messages_total", frozenset({("queue", "jobs"), ("actor", "one"), ("outcome", "done")})] == 40
    assert before["fleet_job_seconds_bucket", frozenset({("queue", "jobs"), ("actor", "two"), ("le", "0.3")})] == 40
    assert len(set(figures[1:])) == 1, figures
    assert not list(rooms.metrics.glob(f"*_{pid}.db"))


def test_a_gauge_of_processes_that_are_gone_is_its_part_of_a_sum_a_least_a_most_or_a_latest_or_none(
    rooms: Rooms, recycle: Callable[[], int]
) -> None:
    for _ in range(3):
        rooms.count_in(recycle())
    found = {name: value for (name, labels), value in scraped(rooms).items() if name.startswith("app_") and not labels}
    assert {name: found.get(name) for name in ("app_min", "app_max", "app_sum", "app_mostrecent")} == {
        "app_min": 0.0,
        "app_max": 2.0,
        "app_sum": 3.0,
        "app_mostrecent": 2.0,
    }
    waiting = ("fleet_outbox_rows", frozenset({("state", "waiting")}))
    assert scraped(rooms)[waiting] == 2, "what a janitor saw last is not forgotten with its process"


def test_what_the_supervisor_counts_itself_stands_beside_what_its_children_did(
    rooms: Rooms, recycle: Callable[[], int]
) -> None:
    rooms.count_in(recycle())
    theirs, ours = ("jobs", "one", "done"), ("jobs", "taken away", "done")
    keys = [
        ("fleet_messages_total", frozenset(zip(("queue", "actor", "outcome"), labels, strict=True)))
        for labels in (theirs, ours)
    ]
    before = [scraped(rooms, REGISTRY).get(key, 0.0) for key in keys]
    assert before[0] >= 1
    for labels in (theirs, ours):
        metrics.message_ended(*labels)
    assert [scraped(rooms, REGISTRY)[key] for key in keys] == [value + 1 for value in before]


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
        wait_until(lambda: len(lane.events("end")) == number, 30)  # noqa: B023
        url = re.findall(r"http://127\.0\.0\.1:\d+/metrics", lane.log.read_text())[0]
        counted = r'fleet_messages_total\{actor="wait",outcome="done",queue="jobs"\}'
        wait_until(lambda: metric(url, counted) == number, 30)  # noqa: B023
        os.kill(pid, signal.SIGKILL)
        pids.append(pid)
    wait_until(lambda: len(lane.logged("worker_died")) == 2, 30)
    wait_until(lambda: metric(url, counted) == 2, 30)
    assert metric(url, r'fleet_worker_ends_total\{how="died",lane="jobs"\}') == 2
    assert metric(url, r'fleet_lane_processes\{lane="jobs",state="declared"\}') == 1
    assert metric(url, r'fleet_start_lag_seconds_count\{queue="jobs"\}') == 2
    (folder,) = folders
    left = {file.name for file in folder.glob("*.db")}
    assert "counter_gone.db" in left
    assert not [name for name in left for pid in pids if str(pid) in name]


def test_a_file_that_a_child_spoilt_as_it_died_is_left_out(tmp_path: Path) -> None:
    sums, good, bad = tmp_path / "counter_gone.db", tmp_path / "counter_1.db", tmp_path / "counter_2.db"
    key = mmap_key("jobs", "jobs_total", [], [], "help")
    counts = MmapedDict(str(good))
    counts.write_value(key, 3.0, 0.0)
    counts.close()
    bad.write_bytes((1000).to_bytes(4, "little") + b"\xff" * 60)
    for gone in (good, bad):
        _join(gone, sums, _JOINED["counter"])
    assert [(key, 3.0)] == [(name, value) for name, value, *_ in MmapedDict.read_all_values_from_file(str(sums))]


def test_a_supervisor_that_starts_while_another_looks_for_abandoned_folders_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A folder that is not locked yet looks like that of one that was killed."""
    looked: list[Path] = []
    lock = fcntl.flock

    def after_the_other_looked(file: IO[bytes], how: int) -> None:
        if how == fcntl.LOCK_EX and len(looked) < 2:
            looked.append(Path(file.name).parent)
            _remove_abandoned(looked[-1].parent)
        lock(file, how)

    monkeypatch.setattr(rooms_module.fcntl, "flock", after_the_other_looked)
    made = Rooms()
    _remove_abandoned(made.boards.parent)
    assert made.metrics.is_dir() and made.boards not in looked
    made.remove()
    assert not any(folder.exists() for folder in [*looked, made.boards])
