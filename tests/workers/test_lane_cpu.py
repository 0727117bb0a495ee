"""The supervisor counts the CPU of its lane's processes, also of those that ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psutil
import redis

from fleet import flow
from fleet.broker import keys
from fleet.clock import clock
from tests.waiting import wait_until


def counted(client: redis.Redis, namespace: str) -> float:
    """Seconds, in the last twenty minutes."""
    last = flow.minute_of(clock.now())
    found: list[Any] = [
        client.hget(keys.flow(namespace, minute), "l:jobs:cpu_us") for minute in range(last - 20, last + 1)
    ]
    return sum(int(one or 0) for one in found) / 1e6


def test_what_killed_children_used_is_counted_beside_what_their_successors_use(
    supervise: Callable[..., Any], redis_client: redis.Redis, namespace: str
) -> None:
    lane = supervise()
    lane.ready(1)
    children = [psutil.Process(pid) for pid in lane.children()]
    used = sum(child.cpu_times().user + child.cpu_times().system for child in children)
    assert used > 0.1
    for child in children:
        os.kill(child.pid, signal.SIGKILL)
    lane.ready(2)
    successors = [psutil.Process(pid) for pid in lane.children()]
    more = sum(child.cpu_times().user + child.cpu_times().system for child in successors)
    wait_until(lambda: counted(redis_client, namespace) >= 0.9 * (used + more))
    assert counted(redis_client, namespace) < 5 * (used + more)
