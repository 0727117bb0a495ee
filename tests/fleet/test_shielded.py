"""Where a raise does not strike: behind a shield, where the job leaves by itself, and outside of bodies."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from dramatiq.middleware import Shutdown
from redis.connection import AbstractConnection

from fleet import deadline
from fleet.broker.connection import client_from
from fleet.errors import DeadlineExceeded
from fleet.watchdog import watchdog

SHORT = timedelta(seconds=0.1)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    yield
    assert watchdog.watched() == 0
    assert deadline.remaining() is None


def spin(seconds: float) -> None:
    """Hold the thread in pure Python."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        pass


def test_a_job_that_leaves_by_check_or_a_clamped_timeout_is_not_raised_in() -> None:
    code = """
import threading, time
from datetime import timedelta
from fleet import deadline
from fleet.errors import DeadlineExceeded
def waits():
    threading.Event().wait(deadline.clamp(timedelta(hours=1)).total_seconds())
    deadline.check()
def spins():
    while True: pass
for body in (waits, spins):
    try:
        deadline.run_within(timedelta(seconds=0.5), body)
    except DeadlineExceeded:
        print(deadline.raised())
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == ["False", "True"]


def test_within_a_shield_nothing_strikes_and_what_was_due_strikes_at_its_end() -> None:
    passed: list[str] = []

    def body() -> None:
        with deadline.shielded():
            with deadline.shielded():
                spin(0.5)
            passed.append("inner")
            spin(0.1)
            passed.append("outer")
        passed.append("after")

    with pytest.raises(DeadlineExceeded):
        deadline.run_within(SHORT, body)
    assert passed == ["inner", "outer"]


def test_a_shield_entered_at_any_instant_either_holds_or_was_never_there() -> None:
    """The lock is taken as one of Python's is, by acquire and try; neither it nor the shield is ever left behind."""
    lock = threading.Lock()
    left: list[int] = []

    def body() -> None:
        run = deadline.current_run()
        assert run is not None
        try:
            while True:
                with deadline.shielded():
                    lock.acquire()
                    lock.release()
        finally:
            left.append(run.seat.shields + lock.locked())

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(500):
            with pytest.raises(DeadlineExceeded):
                deadline.run_within(timedelta(milliseconds=1 + number % 40 * 0.02), body)
    finally:
        sys.setswitchinterval(usual)
    assert set(left) == {0}
    assert len(left) > 400  # on a busy machine some are told before they are in their loop


def test_bodies_are_interrupted_and_nothing_else_is() -> None:
    ended: dict[str, BaseException | None] = {}
    begun = threading.Barrier(3)

    def job() -> None:
        begun.wait()
        spin(30)

    def within(name: str) -> None:
        try:
            deadline.run_within(timedelta(minutes=1), job)
        except BaseException as error:
            ended[name] = error
        spin(0.5)  # where a raise that came late would strike

    threads = [threading.Thread(target=within, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    begun.wait()
    assert deadline.interrupt_bodies(Shutdown) == 2
    for thread in threads:
        thread.join(10)
    assert [type(error) for error in ended.values()] == [Shutdown, Shutdown]
    assert deadline.interrupt_bodies(Shutdown) == 0


def test_bodies_that_end_in_time_leave_nothing_for_their_deadlines_to_find() -> None:
    for _ in range(5_000):
        deadline.run_within(timedelta(hours=1), int)
    assert len(watchdog._due) < 2_000
    assert len(watchdog._strikes) < 10


def test_no_round_trip_of_a_pipeline_is_cut_in_half(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection would go back to the pool with replies that the next who takes it reads as its own."""
    shields: list[int] = []
    send = AbstractConnection.send_packed_command

    def sent(*args: Any, **options: Any) -> Any:
        run = deadline.current_run()
        shields.append(run.seat.shields if run is not None else 0)
        return send(*args, **options)

    def body() -> None:
        for transaction in (False, True):
            with client.pipeline(transaction=transaction) as pipe:
                pipe.ping()
                pipe.execute()
        with client.pipeline() as pipe:
            pipe.watch("nobody")  # and is left watching

    with client_from(redis_url) as client:
        client.ping()
        monkeypatch.setattr(AbstractConnection, "send_packed_command", sent)
        deadline.run_within(timedelta(minutes=1), body)
    assert len(shields) == 4 and 0 not in shields
