"""A lane on a machine that gives no room for a new process: who lives goes on, and the places are tried again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.broker.conftest import OwnRedis
from tests.waiting import wait_until
from tests.workers.conftest import Running
from tests.workers.test_vitals import page

Supervise = Callable[..., Running]


@contextmanager
def no_room(lane: Running) -> Iterator[None]:
    """The lane's supervisor can make no board, as where its file system is full."""
    opened = [Path(file.path) for file in psutil.Process(lane.process.pid).open_files()]
    boards = next(path.parent for path in opened if path.parent.name.startswith("fleet-boards-"))
    away = boards.with_name(f"away-{boards.name}")
    boards.rename(away)
    try:
        yield
    finally:
        away.rename(boards)


def test_a_child_that_cannot_be_replaced_takes_nobody_with_it_and_is_replaced_when_there_is_room(
    supervise: Supervise,
) -> None:
    lane = supervise(TEST_PROCESSES="2")
    lane.ready(2)
    victim, other = lane.children()
    with no_room(lane):
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(lane.logged("worker_not_started")) >= 2 or lane.process.poll() is not None, 30)
        assert lane.process.poll() is None
        assert lane.children() == {other}
        assert page(lane, "readyz") == (200, "ok\n"), "the other one serves"
    wait_until(lambda: len(lane.children()) == 2 and len(lane.logged("worker_ready")) == 3, 30)
    assert other in lane.children()


def test_a_lane_that_cannot_start_its_first_child_says_so_and_serves_when_there_is_room(
    supervise: Supervise, tmp_path: Path
) -> None:
    own = OwnRedis(tmp_path)
    lane = supervise(FLEET_REDIS_URL=own.url)
    try:
        wait_until(lambda: lane.logged("lane_waits_for_redis"), 30)
        with no_room(lane):
            own.start()
            wait_until(lambda: lane.logged("worker_not_started") or lane.process.poll() is not None, 30)
            assert lane.process.poll() is None
            waits = (503, "no child serves yet: 1 waiting for a restart\n")
            wait_until(lambda: page(lane, "readyz") == waits, 30)
            assert page(lane, "healthz") == (200, "ok\n")
        lane.ready(1)
    finally:
        own.stop()
