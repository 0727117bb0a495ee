"""What others see of a lane, with its supervisor as a real process, and of one whose loop hangs."""

from __future__ import annotations

import os
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from fleet.clock import clock
from fleet.workers.board import ChildPhase
from fleet.workers.presence import DRAINING, Report, present
from fleet.workers.process import Child
from fleet.workers.systemd import Systemd
from fleet.workers.vitals import Vitals
from tests.waiting import wait_until
from tests.workers.conftest import APP, Running
from tests.workers.test_up import LANE

Supervise = Callable[..., Running]


def page(lane: Running, name: str) -> tuple[int, str]:
    url = re.findall(r"http://127\.0\.0\.1:\d+", lane.log.read_text())[0]
    try:
        with urllib.request.urlopen(f"{url}/{name}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_lane_is_ready_when_it_consumes_and_not_while_its_child_is_stopped(supervise: Supervise) -> None:
    lane = supervise()
    lane.ready(1)
    wait_until(lambda: page(lane, "readyz") == (200, "ok\n"), 30)
    (child,) = lane.children()
    os.kill(child, signal.SIGSTOP)
    try:
        _, said = wait_until(lambda: (found := page(lane, "readyz"))[0] == 503 and found, 15)
        assert re.fullmatch(rf"pump of pid {child} last turned 1\d s ago: Redis away or thread hung\n", said), said
        assert page(lane, "healthz") == (200, "ok\n")
    finally:
        os.kill(child, signal.SIGCONT)
    wait_until(lambda: page(lane, "readyz") == (200, "ok\n"), 30)


def test_a_child_is_reported_by_its_supervisor_also_when_it_is_stopped(
    supervise: Supervise, redis_client: redis.Redis, namespace: str
) -> None:
    lane = supervise()
    lane.ready(1)
    lane.send("running")
    wait_until(lambda: lane.events("begin"), 30)
    (child,) = lane.children()
    os.kill(child, signal.SIGSTOP)

    def reports() -> list[Report]:
        found = present(redis_client, namespace)
        return found if len(found) == 2 and found[1].jobs else []

    try:
        supervisor, worker = wait_until(reports, 30)
        assert (supervisor.kind, supervisor.pid) == ("supervisor", lane.process.pid)
        assert (worker.kind, worker.pid, worker.phase) == ("worker", child, "serving")
        (job,) = worker.jobs
        assert (job.actor, job.queue, job.phase) == ("wait", "jobs", "body")
        assert job.soft == 2 / 3 * (job.hard or job.soft), "two minutes of three"
    finally:
        os.kill(child, signal.SIGCONT)


def test_a_draining_lane_is_not_ready_and_says_so(
    supervise: Supervise, redis_client: redis.Redis, namespace: str
) -> None:
    lane = supervise()
    lane.ready(1)
    lane.send("running")
    wait_until(lambda: lane.events("begin"), 30)
    lane.process.terminate()
    wait_until(lambda: page(lane, "readyz") == (503, "the lane drains\n"), 30)
    assert page(lane, "healthz") == (200, "ok\n")
    wait_until(
        lambda: [one.phase for one in present(redis_client, namespace) if one.kind == "supervisor"] == [DRAINING], 30
    )


def test_systemd_hears_ready_once_the_lane_consumes_then_the_watchdog_then_the_drain(
    supervise: Supervise, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        lane = supervise(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="1000000")
        said: list[str] = []
        while said.count("WATCHDOG=1") < 4 or "STATUS=1 of 1 children serve" not in said:
            said.append(manager.recv(4096).decode())
        assert said.index("STATUS=no child serves yet: 1 starting") < said.index("READY=1")
        assert said[said.index("READY=1") + 1] == "STATUS=1 of 1 children serve"
        lane.process.terminate()
        while not said[-1].startswith("STOPPING=1"):
            said.append(manager.recv(4096).decode())
        assert said[-1] == "STOPPING=1\nSTATUS=drains, for 0:00:30 at most"


def test_a_loop_that_hangs_makes_the_process_unhealthy_and_unready(monkeypatch: pytest.MonkeyPatch) -> None:
    vitals = Vitals(LANE, Systemd(None))
    assert vitals.unhealthy() is None and vitals.unready() == "the supervisor starts"
    vitals.waits_for("Redis")
    assert vitals.unhealthy() is None and vitals.unready() == "waits for Redis"
    vitals.look([], waiting=1, now=clock.monotonic() - 9)
    assert vitals.unhealthy() is None and vitals.unready() == "no child serves yet: 1 waiting for a restart"
    vitals.look([], waiting=1, now=clock.monotonic() - 14)
    assert vitals.unhealthy() == vitals.unready() == "the supervisor's loop last turned 14 s ago"


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    """Starts children that are stopped before they can write their board, and puts on it that they serve."""
    made: list[Child] = []

    def start(*, alone: bool) -> Child:
        one = Child(APP, LANE, tmp_path, str(tmp_path))
        one.alone = alone  # else a spare would have forked it
        made.append(one)
        os.kill(one.pid, signal.SIGSTOP)
        wait_until(one.is_stopped, 30)
        one.board.phase_of_child, one.board.turned_at = ChildPhase.SERVING, clock.monotonic()
        return one

    yield start
    for one in made:
        one.kill()
        one.process.wait()
        one.board.remove()


def test_a_child_that_only_runs_suspects_does_not_make_the_lane_ready(child: Callable[..., Child]) -> None:
    vitals, alone = Vitals(LANE, Systemd(None)), child(alone=True)
    vitals.look([alone], waiting=1, now=clock.monotonic())
    assert vitals.unready() == "no child serves yet: 1 waiting for a restart"
    assert [report.pid for report in vitals.reports()] == [os.getpid(), alone.pid], "it is reported all the same"
    vitals.look([alone, child(alone=False)], waiting=0, now=clock.monotonic())
    assert vitals.unready() is None


def test_a_child_that_was_told_to_retire_does_not_make_the_lane_ready_nor_unready(child: Callable[..., Child]) -> None:
    vitals, retired = Vitals(LANE, Systemd(None)), child(alone=False)
    retired.retire()
    retired.board.turned_at = clock.monotonic() - 60
    vitals.look([retired], waiting=0, now=clock.monotonic())
    assert vitals.unready() == "no child serves yet: 1 retiring"
    vitals.look([retired, child(alone=False)], waiting=0, now=clock.monotonic())
    assert vitals.unready() is None
