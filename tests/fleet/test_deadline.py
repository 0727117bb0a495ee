"""The soft budget is raised in the job's own thread, while its body runs and never after."""

from __future__ import annotations

import gc
import hashlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from fleet import deadline, progress, queue
from fleet import watchdog as watchdog_module
from fleet.errors import DeadlineExceeded
from fleet.watchdog import watchdog

SHORT = timedelta(seconds=0.1)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    yield
    assert watchdog.watched() == 0
    assert deadline.remaining() is None


@pytest.fixture
def counted() -> Callable[..., float]:
    """How much a metric has grown since the fixture was made."""
    from prometheus_client import REGISTRY

    from fleet import metrics

    metrics.begin_worker([])
    names = [{"strike": strike} for strike in ("first", "again")]
    before = {one["strike"]: REGISTRY.get_sample_value("fleet_deadlines_raised_total", one) or 0.0 for one in names}
    return lambda name, **labels: (REGISTRY.get_sample_value(name, labels) or 0.0) - before[labels["strike"]]


def spin(seconds: float) -> None:
    """Hold the thread in pure Python."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        pass


def test_a_loop_in_pure_python_is_ended_at_its_soft_budget() -> None:
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        deadline.run_within(SHORT, spin, 30)
    assert 0.1 <= time.monotonic() - started < 5


def test_a_jobs_own_except_exception_cannot_swallow_the_end_of_its_budget() -> None:
    def stubborn() -> None:
        while True:
            try:
                spin(30)
            except Exception:
                continue

    with pytest.raises(DeadlineExceeded):
        deadline.run_within(SHORT, stubborn)


def test_a_bare_except_is_struck_again_a_second_later() -> None:
    struck: list[float] = []

    def swallower() -> None:
        while True:
            try:
                spin(30)
            except BaseException:
                struck.append(time.monotonic())
                if len(struck) == 2:
                    raise

    with pytest.raises(DeadlineExceeded):
        deadline.run_within(SHORT, swallower)
    assert 0.9 <= struck[1] - struck[0] < 4


def test_what_the_body_returns_and_raises_comes_through() -> None:
    assert deadline.run_within(timedelta(hours=1), lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        deadline.run_within(timedelta(hours=1), lambda: 1 // 0)


def test_outside_a_job_there_is_no_budget_and_nothing_is_cut() -> None:
    deadline.check()
    assert deadline.remaining() is None
    assert deadline.clamp(timedelta(days=1)) == timedelta(days=1)


def test_a_timeout_is_cut_to_what_is_left_and_never_lengthened() -> None:
    def body() -> tuple[timedelta, timedelta]:
        return deadline.clamp(timedelta(days=1)), deadline.clamp(timedelta(seconds=1))

    cut, kept = deadline.run_within(timedelta(minutes=1), body)
    assert timedelta(seconds=50) < cut <= timedelta(minutes=1)
    assert kept == timedelta(seconds=1)


@pytest.mark.parametrize("ask", [deadline.check, lambda: deadline.clamp(SHORT)])
def test_check_and_clamp_raise_when_nothing_is_left(ask: Any) -> None:
    def body() -> str:
        try:
            spin(30)
        except DeadlineExceeded:
            assert deadline.remaining() == timedelta(0)
            try:
                ask()
            except DeadlineExceeded:
                return "nothing left"
        return "something left"

    assert deadline.run_within(SHORT, body) == "nothing left"


def test_a_body_whose_end_is_swept_around_its_budget_is_never_struck_after_it() -> None:
    """Each body spins to a point around its budget; whatever happens, it happens before the call returns."""
    struck = 0
    for number in range(400):
        try:
            deadline.run_within(timedelta(milliseconds=2), spin, 0.001 + number % 40 * 0.00005)
        except DeadlineExceeded:
            struck += 1
        spin(0.0002)  # a raise left pending strikes here, and fails the test
    spin(1.2)  # and one left armed strikes again after a second
    assert 0 < struck < 400


def test_a_body_that_is_over_in_its_last_instruction_leaves_nothing_armed() -> None:
    """Threads that change places at every chance make the raise strike between the body and its disarming."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    armed = 0
    try:
        ends = time.monotonic() + 2
        for number in range(10**9):
            try:
                deadline.run_within(timedelta(microseconds=1 + number % 40), int)
                deadline.run_within(timedelta(microseconds=1 + number % 40), spin, 0)
            except DeadlineExceeded:
                pass
            armed += watchdog.watched()
            if time.monotonic() > ends:
                break
    finally:
        sys.setswitchinterval(usual)
    assert armed == 0


def test_two_threads_are_struck_each_at_its_own_budget() -> None:
    ended: dict[str, float] = {}

    def job(name: str, soft: float) -> None:
        started = time.monotonic()
        try:
            deadline.run_within(timedelta(seconds=soft), spin, 30)
        except DeadlineExceeded:
            ended[name] = time.monotonic() - started

    threads = [threading.Thread(target=job, args=args) for args in (("long", 0.9), ("short", 0.1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert 0.1 <= ended["short"] < 0.9 <= ended["long"]


def test_an_actor_called_from_a_body_runs_on_that_bodys_budget() -> None:
    lefts: list[timedelta | None] = []

    @queue("nested").actor
    def inner() -> None:
        lefts.append(deadline.remaining())

    @queue("nested").actor
    def outer() -> None:
        inner()
        lefts.append(deadline.remaining())

    deadline.grant(timedelta(minutes=1))
    outer()
    inner()
    within, after_nested, outside = lefts
    assert within is not None and after_nested is not None
    assert timedelta(0) < after_nested <= within <= timedelta(minutes=1)
    assert outside is None


def test_a_grant_that_is_taken_back_is_not_used_by_the_next_body() -> None:
    deadline.grant(SHORT)
    deadline.grant(None)
    assert deadline.take_grant() is None


@pytest.fixture
def sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises repeated a hundred times as fast, but for the time between any two of them."""
    monkeypatch.setattr(watchdog_module, "REPEATS", (0.1, 0.5, 1.5))
    monkeypatch.setattr(watchdog_module, "APART", 0.1)


@pytest.mark.usefixtures("sooner")
def test_a_body_that_passes_over_everything_is_struck_again_at_growing_intervals_and_counted(counted: Any) -> None:
    struck: list[float] = []

    def passes() -> None:
        while len(struck) < 5:
            try:
                spin(30)
            except BaseException:
                struck.append(time.monotonic())

    deadline.run_within(SHORT, passes)
    apart = [later - earlier for earlier, later in itertools.pairwise(struck)]
    for found, wanted in zip(apart, (0.1, 0.5, 1.5, 1.5), strict=True):
        assert wanted - 0.05 <= found < wanted + 0.5
    assert counted("fleet_deadlines_raised_total", strike="first") == 1
    assert counted("fleet_deadlines_raised_total", strike="again") == 4
    assert deadline.raised()


def test_a_loop_of_short_calls_into_c_is_ended() -> None:
    def hash_on() -> None:
        while True:
            hashlib.sha256(b"x" * 100_000).hexdigest()

    with pytest.raises(DeadlineExceeded):
        deadline.run_within(SHORT, hash_on)


def test_a_finally_that_sleeps_ends_and_the_exception_is_the_deadline() -> None:
    slept: list[bool] = []

    def body() -> None:
        try:
            spin(30)
        finally:
            time.sleep(0.3)
            slept.append(True)

    with pytest.raises(DeadlineExceeded):
        deadline.run_within(SHORT, body)
    assert slept == [True]


def test_a_nested_helpers_own_except_is_no_hindrance() -> None:
    def helper() -> int:
        try:
            spin(30)
        except Exception:
            return 1
        return 2

    with pytest.raises(DeadlineExceeded):
        deadline.run_within(SHORT, lambda: [helper() for _ in range(100)])


def test_the_deadline_says_for_how_long_the_job_ran_or_how_far_it_came() -> None:
    with pytest.raises(DeadlineExceeded, match=r"^timed out after 0\.\d s$"):
        deadline.run_within(SHORT, spin, 30)

    def counts() -> None:
        progress.publish(340, 1772)
        spin(30)

    with pytest.raises(DeadlineExceeded, match=r"^timed out after 340 of 1772$"):
        deadline.run_within(SHORT, counts)

    def leaves_by_itself() -> None:
        progress.stage("while it slept")
        while True:
            time.sleep(0.01)
            deadline.check()

    with pytest.raises(DeadlineExceeded, match=r"^timed out while it slept$"):
        deadline.run_within(SHORT, leaves_by_itself)


def test_the_shorter_of_two_nested_budgets_holds_and_the_outer_one_after_it() -> None:
    def inner_is_shorter() -> str:
        with pytest.raises(DeadlineExceeded):
            deadline.run_within(SHORT, spin, 30)
        left = deadline.remaining()
        assert left is not None and timedelta(seconds=50) < left
        return "went on"

    assert deadline.run_within(timedelta(minutes=1), inner_is_shorter) == "went on"
    with pytest.raises(DeadlineExceeded):
        deadline.run_within(SHORT, deadline.run_within, timedelta(minutes=1), spin, 30)


def test_what_a_collection_of_garbage_finalizes_under_the_lock_does_not_hang_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a connection that nobody closed does, which returns to its pool under a shield."""
    deliver, came_back = watchdog._deliver_waiting, threading.Event()

    class Left:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            with deadline.shielded():
                came_back.set()

    def collects(seat: watchdog_module.Seat) -> None:
        gc.collect()
        deliver(seat)

    def unshields() -> None:
        Left()
        with deadline.shielded():
            pass

    monkeypatch.setattr(watchdog, "_deliver_waiting", collects)
    body = threading.Thread(target=deadline.run_within, args=(timedelta(seconds=30), unshields), daemon=True)
    body.start()
    body.join(5)
    assert came_back.is_set() and not body.is_alive()
