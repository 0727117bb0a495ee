"""A lane as real processes: deaths, long jobs, drains, metrics."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import urllib.request
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
import redis

from fleet.workers.board import Board
from fleet.workers.process import pause_after
from tests.broker.conftest import OwnRedis
from tests.waiting import wait_until
from tests.workers.conftest import APP, Running

Supervise = Callable[..., Running]


@pytest.mark.alone
def test_a_killed_child_is_replaced_alone_and_its_message_runs_again_within_ten_seconds(supervise: Supervise) -> None:
    lane = supervise(TEST_PROCESSES="2")
    lane.ready(2)
    before = lane.children()
    lane.send("doomed")
    (begun,) = wait_until(lambda: lane.events("begin"), 30)
    victim = int(begun[2])
    os.kill(victim, signal.SIGKILL)
    _, again = wait_until(lambda: len(lane.events("begin")) == 2 and lane.events("begin"), 10)
    assert again[3] == begun[3], "it is the same message"
    wait_until(lambda: len(lane.children()) == 2, 30)
    assert lane.children() & before == before - {victim}
    assert '"SIGKILL"' in lane.logged("worker_died")[0]
    lane.gate.touch()
    wait_until(lambda: lane.events("end"), 30)
    assert len(lane.events("end")) == 1


def test_a_child_that_ended_a_job_did_not_die_young_and_is_replaced_at_once(supervise: Supervise) -> None:
    lane = supervise()
    lane.gate.touch()
    for number in (1, 2):
        lane.ready(number)
        lane.send(f"job-{number}")
        wait_until(lambda: len(lane.events("end")) == number, 30)  # noqa: B023
        (child,) = lane.children()
        command = psutil.Process(child).cmdline()
        board = Board.open(Path(command[command.index("--board") + 1]))
        wait_until(lambda: board.jobs == 1, 30)  # noqa: B023
        board.close()
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: len(lane.logged("worker_died")) == number, 30)  # noqa: B023
    assert [re.findall(r'"restart_in": ([\d.]+)', line)[0] for line in lane.logged("worker_died")] == ["0.0"] * 2


def test_a_drain_lets_the_running_job_end_and_hands_back_what_was_only_prefetched(
    supervise: Supervise, redis_client: redis.Redis, namespace: str
) -> None:
    lane = supervise(TEST_PREFETCH="3")
    lane.ready(1)
    for name in ("running", "prefetched-1", "prefetched-2"):
        lane.send(name)
    wait_until(lambda: lane.events("begin"), 30)
    wait_until(lambda: redis_client.llen(f"{namespace}:jobs") == 0, 30)
    lane.process.terminate()
    wait_until(lambda: lane.logged("lane_draining"), 30)
    assert lane.process.poll() is None
    lane.gate.touch()
    assert lane.process.wait(20) == 0
    assert [words[1] for words in lane.events("end")] == ["running"]
    assert redis_client.llen(f"{namespace}:jobs") == 2
    assert "job running was here" in lane.log.read_text(), "what a job printed is not lost at the end"


def test_a_job_that_outlasts_its_drain_is_left_and_returns_to_the_next_worker(supervise: Supervise) -> None:
    lane = supervise(TEST_DRAIN="0.5")
    lane.ready(1)
    lane.send("stubborn")
    wait_until(lambda: lane.events("begin"), 30)
    lane.process.terminate()
    assert lane.process.wait(10) == 0
    assert lane.logged("drain_cut")
    heir = supervise()
    wait_until(lambda: len(heir.events("begin")) == 2, 15)
    first, second = heir.events("begin")
    assert first[3] == second[3]


def test_a_child_dies_with_its_supervisor_even_by_sigkill(supervise: Supervise) -> None:
    lane = supervise()
    lane.ready(1)
    (child,) = lane.children()
    lane.process.kill()
    lane.process.wait(5)
    wait_until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE, 30)


def test_a_lane_whose_children_cannot_start_tries_again_ever_later_and_says_the_cause(
    supervise: Supervise, tmp_path: os.PathLike[str]
) -> None:
    broken = shutil.copytree(APP, os.path.join(tmp_path, "broken"))
    with open(os.path.join(broken, "actors", "jobs.py"), "a") as source:
        source.write('\nif "PROMETHEUS_MULTIPROC_DIR" in os.environ:\n    import a_package_nobody_installed\n')
    lane = supervise(app=broken)
    died = wait_until(lambda: len(lane.logged("worker_died")) >= 3 and lane.logged("worker_died"), 20)
    assert "No module named 'a_package_nobody_installed'" in lane.log.read_text()
    assert [re.findall(r'"restart_in": ([\d.]+)', line)[0] for line in died[:3]] == ["1.0", "2.0", "4.0"]
    assert all("exit code 1" in line for line in died)
    times = [datetime.fromisoformat(re.findall(r'"timestamp": "([^"]+)"', line)[0]) for line in died[:3]]
    first, second = ((later - earlier).total_seconds() for earlier, later in pairwise(times))
    assert first >= 1.0 and second >= 2.0
    assert lane.process.poll() is None


def test_a_lane_that_is_started_before_redis_says_so_once_and_serves_when_it_is_there(
    supervise: Supervise, tmp_path: Path
) -> None:
    own = OwnRedis(tmp_path)
    lane = supervise(FLEET_REDIS_URL=own.url.replace("redis://", "redis://:s3cret@"))
    try:
        wait_until(lambda: lane.logged("lane_waits_for_redis"), 30)
        assert lane.process.poll() is None
        own.start("--requirepass", "s3cret", wait=False)
        lane.ready(1)
        assert len(lane.logged("lane_waits_for_redis")) == 1
        assert "s3cret" not in lane.log.read_text()
    finally:
        own.stop()


@pytest.mark.parametrize(("deaths", "seconds"), [(0, 0), (1, 1), (2, 2), (5, 16), (6, 30), (5_000, 30)])
def test_the_pause_before_a_restart_doubles_up_to_half_a_minute_and_stays(deaths: int, seconds: float) -> None:
    assert pause_after(deaths) == seconds


def test_the_metrics_endpoint_sums_the_children(supervise: Supervise) -> None:
    lane = supervise(TEST_PROCESSES="2")
    lane.ready(2)
    for name in ("a", "b"):
        lane.send(name)
    wait_until(lambda: len(lane.events("begin")) == 2, 30)
    assert len({words[2] for words in lane.events("begin")}) == 2, "each child runs one"
    url = re.findall(r"http://127\.0\.0\.1:\d+/metrics", lane.log.read_text())[0]
    assert metric(url, r'fleet_jobs_running\{queue="jobs"\}') == 2
    lane.gate.touch()
    counted = r'fleet_messages_total\{actor="wait",outcome="done",queue="jobs"\}'
    wait_until(lambda: metric(url, counted) == 2, 30)
    assert metric(url, r'fleet_jobs_running\{queue="jobs"\}') == 0


def metric(url: str, pattern: str) -> float:
    with urllib.request.urlopen(url, timeout=5) as answer:
        found = re.findall(rf"^{pattern} (\S+)$", answer.read().decode(), re.MULTILINE)
    return float(found[0]) if found else -1.0


def test_middleware_hears_each_worker_process_boot_and_a_fork_that_it_wants_is_named_once_and_not_run(
    supervise: Supervise,
) -> None:
    lane = supervise(TEST_PROCESSES="2")
    lane.ready(2)
    booted = {json.loads(line)["pid"] for line in lane.logged("third_party_booted")}
    assert booted == lane.children()
    (told,) = lane.logged("fork_not_run")
    assert "actors.jobs:serve_figures" in told
