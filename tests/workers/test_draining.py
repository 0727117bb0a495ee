"""`fleet drain`: real supervisors are told to end, and nothing that only looks like one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import psutil
import pytest
import redis

from fleet.workers.draining import drain, wait_until_gone
from fleet.workers.presence import DRAINING, Presence, Report, present
from tests.waiting import wait_until
from tests.workers.conftest import APP, Running

Supervise = Callable[..., Running]


@pytest.fixture
def say(redis_url: str, namespace: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `fleet drain` in the test's namespace."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        settings = {"FLEET_REDIS_URL": redis_url, "FLEET_NAMESPACE": namespace, **environment}
        return subprocess.run(
            [sys.executable, "-m", "fleet", "--app", str(APP), "drain", *arguments],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


Say = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def another_process() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()", "work", "jobs"], stdin=-1)
    yield process.pid
    process.kill()
    process.communicate()


def reported(lane: Running, client: redis.Redis, namespace: str) -> None:
    lane.ready(1)
    wait_until(lambda: any(report.kind == "supervisor" for report in present(client, namespace)), 30)


def reap(running: Running) -> None:
    """As a service manager does; a zombie would go on having its pid."""
    threading.Thread(target=running.process.wait, daemon=True).start()


def test_a_lane_drained_by_hand_lets_its_job_end_and_wait_returns_when_it_is_gone(
    supervise: Supervise, say: Say, redis_client: redis.Redis, namespace: str
) -> None:
    lane = supervise()
    reported(lane, redis_client, namespace)
    lane.send("running")
    wait_until(lambda: lane.events("begin"), 30)
    told = say("jobs")
    assert (told.returncode, told.stdout) == (0, f"Lane jobs drains: pid {lane.process.pid} was told to end.\n")
    wait_until(lambda: lane.logged("lane_draining"), 30)
    assert lane.process.poll() is None
    reap(lane)
    threading.Timer(1.0, lane.gate.touch).start()
    supervisor = psutil.Process(lane.process.pid)
    assert wait_until_gone([supervisor], timedelta(seconds=20)) == []
    assert [words[1] for words in lane.events("end")] == ["running"]


def test_wait_ends_when_the_supervisor_does(
    supervise: Supervise, say: Say, redis_client: redis.Redis, namespace: str
) -> None:
    lane = supervise()
    reported(lane, redis_client, namespace)
    reap(lane)
    told = say("jobs", "--wait")
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[-1] == "Lane jobs has drained here."
    assert not psutil.pid_exists(lane.process.pid)
    assert lane.logged("lane_ended")


def test_wait_gives_up_after_its_limit_and_names_what_still_runs(
    supervise: Supervise, redis_client: redis.Redis, namespace: str
) -> None:
    lane = supervise()
    reported(lane, redis_client, namespace)
    lane.send("stubborn")
    wait_until(lambda: lane.events("begin"), 30)
    done = drain(present(redis_client, namespace), "jobs")
    assert wait_until_gone(done.signalled, timedelta(seconds=0.5)) == list(done.signalled) != []


def test_an_ended_process_that_nobody_reaped_counts_as_gone(
    supervise: Supervise, redis_client: redis.Redis, namespace: str
) -> None:
    lane = supervise()
    reported(lane, redis_client, namespace)
    done = drain(present(redis_client, namespace), "jobs")
    assert wait_until_gone(done.signalled, timedelta(seconds=20)) == []
    assert psutil.Process(lane.process.pid).status() == psutil.STATUS_ZOMBIE


def test_a_lane_that_does_not_run_here_is_exit_1_and_where_it_runs_is_said(
    say: Say, redis_client: redis.Redis, namespace: str
) -> None:
    presence = Presence(redis_client, namespace, lambda: Report("supervisor", "jobs", pid=7, host="another-host"))
    presence.start()
    try:
        wait_until(lambda: present(redis_client, namespace), 30)
        told = say("jobs", "--wait")
    finally:
        presence.stop()
    assert told.returncode == 1
    assert told.stdout.splitlines() == [
        "Lane jobs also runs on another-host as pid 7: say `fleet drain jobs` there, or stop that container.",
        f"No supervisor of lane jobs was told to end on {socket.gethostname()}.",
    ]


def test_a_lane_that_nobody_declared_is_answered_with_the_one_that_was_meant(say: Say) -> None:
    told = say("job")
    assert told.returncode == 2
    assert "Did you mean 'jobs'?" in told.stderr


def test_a_pid_that_another_process_has_now_is_left_alone(another_process: int) -> None:
    done = drain([Report("supervisor", "jobs", pid=another_process)], "jobs")
    assert not done.began
    assert "it is no `fleet work jobs` process" in done.refused[another_process]
    assert psutil.Process(another_process).status() != psutil.STATUS_ZOMBIE


def test_a_supervisor_of_another_lane_and_a_process_that_has_ended_are_left_alone(
    supervise: Supervise, redis_client: redis.Redis, namespace: str
) -> None:
    lane = supervise()
    reported(lane, redis_client, namespace)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    reports = [Report("supervisor", "other", pid=lane.process.pid), Report("supervisor", "other", pid=ended.pid)]
    done = drain(reports, "other")
    assert not done.began
    assert done.refused[ended.pid] == "it has ended"
    assert "no `fleet work other` process" in done.refused[lane.process.pid]
    assert lane.process.poll() is None and not lane.logged("lane_draining")


def test_a_supervisor_that_drains_already_is_not_told_a_second_time(
    supervise: Supervise, redis_client: redis.Redis, namespace: str
) -> None:
    lane = supervise()
    reported(lane, redis_client, namespace)
    done = drain([Report("supervisor", "jobs", pid=lane.process.pid, phase=DRAINING)], "jobs")
    assert done.began and not done.signalled
    assert [process.pid for process in done.draining] == [lane.process.pid]
    assert "drains already" in next(done.lines())
    with pytest.raises(subprocess.TimeoutExpired):
        lane.process.wait(0.5)
    assert not lane.logged("lane_draining")


def test_children_and_beats_are_not_told(supervise: Supervise, redis_client: redis.Redis, namespace: str) -> None:
    lane = supervise()
    reported(lane, redis_client, namespace)
    wait_until(lambda: any(report.kind == "worker" for report in present(redis_client, namespace)), 30)
    done = drain(present(redis_client, namespace), "jobs")
    assert [process.pid for process in done.signalled] == [lane.process.pid]


def test_a_drain_that_the_settings_name_holds_in_place_of_the_lanes(supervise: Supervise) -> None:
    lane = supervise(TEST_DRAIN="0.2", FLEET_DRAIN="30s")
    lane.ready(1)
    lane.send("long")
    wait_until(lambda: lane.events("begin"), 20)
    lane.process.terminate()
    wait_until(lambda: lane.logged("lane_draining"), 10)
    with pytest.raises(subprocess.TimeoutExpired):
        lane.process.wait(1.5)  # the lane's own drain is long over
    lane.gate.touch()
    assert lane.process.wait(20) == 0
    assert [len(lane.events(event)) for event in ("begin", "end")] == [1, 1]
    assert not lane.logged("drain_cut")
