"""An async actor's soft budget ends its coroutine where it waits or runs, and no other coroutine of its loop."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from dramatiq.asyncio import EventLoopThread, set_event_loop_thread
from dramatiq.middleware import Shutdown

from fleet import deadline
from fleet.coroutines import to_sync
from fleet.errors import DeadlineExceeded, EventLoopMissing
from fleet.watchdog import watchdog

SHORT = timedelta(seconds=0.15)


@pytest.fixture(autouse=True)
def loop() -> Iterator[EventLoopThread]:
    thread = EventLoopThread(logging.getLogger(__name__))
    thread.start(timeout=5)
    set_event_loop_thread(thread)
    yield thread
    set_event_loop_thread(None)
    thread.stop()  # type: ignore[no-untyped-call]
    assert watchdog.watched() == 0


class Bystander:
    """A coroutine of the same loop; it counts until it is let go."""

    def __init__(self, loop: EventLoopThread) -> None:
        self._on = True
        self.counted = 0
        self._future = asyncio.run_coroutine_threadsafe(self._count(), loop.loop)

    async def _count(self) -> None:
        while self._on:
            self.counted += 1
            await asyncio.sleep(0.001)

    def unharmed(self) -> bool:
        self._on = False
        self._future.result(10)
        return self.counted > 0


def spin(seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        pass


def test_a_coroutine_that_waits_ends_at_its_soft_budget_after_its_cleanup(loop: EventLoopThread) -> None:
    cleaned: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append("up")

    bystander, started = Bystander(loop), time.monotonic()
    with pytest.raises(DeadlineExceeded, match="timed out after"):
        deadline.run_within(SHORT, to_sync(waits))
    assert 0.15 <= time.monotonic() - started < 3
    assert cleaned == ["up"]
    assert bystander.unharmed()


def test_what_it_waits_for_ends_with_it(loop: EventLoopThread) -> None:
    ended: list[str] = []

    async def part(name: str) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(name)

    async def waits_for_tasks() -> None:
        await asyncio.wait_for(asyncio.gather(part("gathered"), part("too")), 20)

    async def waits_in_a_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(part("grouped"))
            await asyncio.sleep(30)

    for body in (waits_for_tasks, waits_in_a_group):
        with pytest.raises(DeadlineExceeded):
            deadline.run_within(SHORT, to_sync(body))
    assert ended == ["gathered", "too", "grouped"]


def test_a_coroutine_that_holds_the_loop_is_struck_and_no_other_one_is(loop: EventLoopThread) -> None:
    async def holds() -> None:
        async with asyncio.TaskGroup():  # which wraps what strikes its body
            spin(30)

    bystander = Bystander(loop)
    with pytest.raises(DeadlineExceeded):
        deadline.run_within(SHORT, to_sync(holds))
    assert bystander.unharmed()


def test_one_that_passes_over_its_cancellation_is_cancelled_again_a_second_later(loop: EventLoopThread) -> None:
    struck: list[float] = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(30)
            except BaseException:
                struck.append(time.monotonic())
                if len(struck) == 2:
                    raise

    with pytest.raises(DeadlineExceeded):
        deadline.run_within(SHORT, to_sync(stubborn))
    assert 0.9 <= struck[1] - struck[0] < 4


def test_steps_swept_around_the_budget_harm_neither_the_loop_nor_its_other_coroutines(loop: EventLoopThread) -> None:
    """Each body goes through hundreds of steps, some of them busy, and is struck in one of them or between two."""
    alive: set[int] = set()

    async def steps(number: int) -> None:
        alive.add(number)
        try:
            while True:
                spin(0.0002 * (number % 2))
                await asyncio.sleep(0)
        finally:
            alive.discard(number)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    bystander = Bystander(loop)
    try:
        for number in range(600):
            with pytest.raises(DeadlineExceeded):
                deadline.run_within(timedelta(milliseconds=2 + number % 20 * 0.1), to_sync(steps), number)
            assert not alive, number
            assert loop.is_alive()
    finally:
        sys.setswitchinterval(usual)
    assert bystander.unharmed()


def test_what_a_coroutine_returns_and_raises_comes_through() -> None:
    async def seven() -> int:
        await asyncio.sleep(0)
        return 7

    async def broken(kind: type[Exception]) -> None:
        await asyncio.sleep(0)
        raise kind

    assert deadline.run_within(timedelta(hours=1), to_sync(seven)) == 7
    assert to_sync(seven)() == 7  # outside a worker too
    for kind in (ZeroDivisionError, TimeoutError):
        with pytest.raises(kind):
            deadline.run_within(timedelta(hours=1), to_sync(broken), kind)


def test_a_coroutine_and_its_tasks_know_what_is_left() -> None:
    async def left() -> tuple[Any, Any]:
        async def within() -> Any:
            return deadline.remaining()

        return deadline.remaining(), await asyncio.create_task(within())

    for found in deadline.run_within(timedelta(minutes=1), to_sync(left)):
        assert timedelta(seconds=50) < found <= timedelta(minutes=1)


def test_a_drain_interrupts_a_coroutine_as_it_does_a_thread() -> None:
    begun, ended = threading.Event(), []

    async def waits() -> None:
        begun.set()
        await asyncio.sleep(30)

    def job() -> None:
        try:
            deadline.run_within(timedelta(minutes=1), to_sync(waits))
        except BaseException as error:
            ended.append(type(error))

    thread = threading.Thread(target=job)
    thread.start()
    begun.wait()
    assert deadline.interrupt_bodies(Shutdown) == 1
    thread.join(10)
    assert ended == [Shutdown]


def test_without_a_loop_it_says_so(loop: EventLoopThread) -> None:
    async def body() -> None:
        """Never run."""

    set_event_loop_thread(None)
    with pytest.raises(EventLoopMissing, match="no event loop"):
        deadline.run_within(SHORT, to_sync(body))
