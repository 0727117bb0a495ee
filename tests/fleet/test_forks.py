"""A process that a body forked waits for no thread of its parent's, and its own runs have budgets that hold."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis

from fleet import deadline, flow, metrics, outbox
from fleet.broker import FleetBroker
from fleet.flow import Flow
from fleet.storage.engine import _Once
from fleet.watchdog import watchdog
from tests.forks import in_a_fork

MINUTE = timedelta(minutes=1)
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@contextmanager
def held(lock: Any) -> Iterator[None]:
    """A lock is held by another thread."""
    taken, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            let_go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    yield
    let_go.set()
    thread.join()


def spin(seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        pass


def test_a_fork_of_a_body_waits_for_no_lock_of_its_parents_watchdog() -> None:
    def left() -> timedelta | None:
        with deadline.shielded():
            return deadline.remaining()

    def body() -> str | None:
        with held(watchdog._lock):
            return in_a_fork(left)

    assert deadline.run_within(MINUTE, body) == "None"


def test_what_runs_under_a_budget_in_a_fork_of_a_body_is_struck_there() -> None:
    def within() -> None:
        deadline.run_within(timedelta(seconds=0.1), spin, 3)

    assert "timed out after" in str(deadline.run_within(MINUTE, in_a_fork, within))


def _made_once() -> tuple[Any, Callable[[], object]]:
    made = _Once(int)
    return made._lock, made


def _counted() -> tuple[Any, Callable[[], object]]:
    flow.activate(Flow(redis.Redis(), "nobody"))
    assert flow._active is not None
    return flow._active._lock, lambda: flow.note_sweep("rows", failed=1, cut=True)


@pytest.mark.parametrize(
    "lock_and_call",
    [
        pytest.param(_made_once, id="what is made once a process"),
        pytest.param(_counted, id="the counts of sweeps"),
        pytest.param(lambda: (metrics._first, lambda: metrics.clock_jumped("own")), id="metrics"),
        pytest.param(
            lambda: (outbox._outage._lock, lambda: outbox._outage.holds_off(FleetBroker(middleware=[]))),
            id="the outbox's outage",
        ),
    ],
)
def test_neither_does_it_wait_for_another_lock_of_the_engines(
    lock_and_call: Callable[[], tuple[Any, Callable[[], object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "_active", None)
    lock, call = lock_and_call()
    with held(lock):
        assert in_a_fork(call) is not None
