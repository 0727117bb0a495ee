"""What a signal's handler rings wakes who waits, at whatever instant of the wait the signal comes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fleet.bell import Bell
from tests.workers.conftest import APP

# Thousands of waits, a signal every 200 us: some come while the main thread is on its way into a wait or out of it.
STORM = """
import signal
from pathlib import Path
from fleet.app import load, settings
from fleet.workers.loading import Loading
from fleet.workers.supervisor import Supervisor

app = load(Path({app!r}))
{made}
signal.signal(signal.SIGALRM, lane._on_signal)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0002)
for _ in range(20_000):
    {waits}
signal.setitimer(signal.ITIMER_REAL, 0)
{after}
print("over")
"""
LANES = {
    "one that serves": {
        "made": "lane = Supervisor(app, app.lane('jobs'))",
        "waits": "lane._stop.clear(), lane._stop.wait(0.0001)",
        "after": "lane._rooms.remove()",
    },
    "one that waits for its code": {
        "made": "lane = Loading(app.root, 'jobs', settings())",
        "waits": "lane._pause(0.0001)",
        "after": "",
    },
}


def test_it_wakes_everybody_who_waits_and_lets_pass_who_comes_later() -> None:
    bell, waiting = Bell(), threading.Barrier(5)

    def waits() -> bool:
        waiting.wait(10)
        return bell.wait()

    with ThreadPoolExecutor(4) as pool:
        woken = [pool.submit(waits) for _ in range(4)]
        waiting.wait(10)
        assert not bell.wait(0.05) and not bell.is_set()
        bell.set()
        assert [one.result(10) for one in woken] == [True] * 4
    assert bell.wait() and bell.is_set()


def test_one_that_was_cleared_is_waited_for_again_however_often_it_was_set() -> None:
    bell = Bell()
    for _ in range(3):
        bell.set()
    assert bell.wait(10)
    bell.clear()
    assert not bell.wait(0.05)
    threading.Timer(0.05, bell.set).start()
    assert bell.wait(10)


@pytest.mark.parametrize("lane", LANES.values(), ids=LANES)
def test_no_signal_stops_a_lane_that_waits(lane: dict[str, str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STORM.format(app=str(APP), **lane)],
        env={**os.environ, "FLEET_REDIS_URL": "redis://127.0.0.1:1/0"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout == "over\n", ended.stderr
