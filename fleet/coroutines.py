"""Runs an async actor's coroutine on Dramatiq's event loop thread, under the soft budget of the thread that waits.

Where the coroutine waits at an `await`, its task is cancelled: libraries clean up after a `CancelledError`, as they
would not after an exception that they do not know. While a step of it runs, `DeadlineExceeded` is raised in the loop's
thread; a step is entered and left under the watchdog's lock, so no other coroutine of that loop is struck. Either way
the actor ends with `DeadlineExceeded`, unless the coroutine swallows what it gets and returns.

Not guaranteed: a task that the coroutine starts and does not wait for runs on. One that holds the loop in one long C
call holds every coroutine of its process.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from dramatiq.asyncio import get_event_loop_thread

from fleet import deadline
from fleet.errors import DeadlineExceeded, EventLoopMissing
from fleet.watchdog import Seat, watchdog

P = ParamSpec("P")
R = TypeVar("R")

_LOOK_SECONDS = 0.5  # for a loop that stopped under its coroutines


def to_sync(fn: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """A function that runs the coroutine function on the event loop thread and waits for it.

    It raises `EventLoopMissing` in a process that has no event loop thread, or whose loop stopped.
    """

    @wraps(fn)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        thread = get_event_loop_thread()
        if thread is None or not thread.loop.is_running():
            raise EventLoopMissing(f"{fn.__qualname__} is async, and this process has no event loop: it is no worker.")
        current = deadline.current_run()
        if current is None:
            return thread.run_coroutine(fn(*args, **kwargs))
        return _seated(current.seat, fn(*args, **kwargs), thread.loop)

    return run


def _seated(seat: Seat, coroutine: Coroutine[Any, Any, R], loop: asyncio.AbstractEventLoop) -> R:
    home = threading.get_ident()
    try:
        try:
            watchdog.leave_thread(seat)
            return _wait(asyncio.run_coroutine_threadsafe(_task(seat, coroutine, loop), loop), loop)
        except (asyncio.CancelledError, concurrent.futures.CancelledError) as error:
            if seat.struck is not None:
                raise seat.struck() from error
            raise
        except BaseExceptionGroup as group:  # a TaskGroup's, which wraps what strikes its body
            if group.subgroup(DeadlineExceeded) is not None:
                raise DeadlineExceeded from group
            raise
    finally:
        if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:  # struck before it was handed over
            coroutine.close()
        watchdog.enter_thread(seat, home)


def _wait(future: concurrent.futures.Future[R], loop: asyncio.AbstractEventLoop) -> R:
    while True:
        done, _ = concurrent.futures.wait([future], _LOOK_SECONDS)
        if done:
            return future.result()
        if not loop.is_running():
            raise EventLoopMissing("The event loop stopped while an async actor ran on it.")


async def _task(seat: Seat, coroutine: Coroutine[Any, Any, R], loop: asyncio.AbstractEventLoop) -> R:
    try:
        watchdog.enter_task(seat, loop, asyncio.current_task())
        return cast("R", await _Steps(seat, coroutine))
    finally:
        watchdog.enter_task(seat, None, None)


class _Steps:
    """An awaitable that goes through a coroutine's steps, each of them a time in which it can be struck."""

    def __init__(self, seat: Seat, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._seat, self._coroutine = seat, coroutine

    def __await__(self) -> _Steps:
        return self

    def __iter__(self) -> _Steps:
        return self

    def __next__(self) -> Any:
        return self._step(self._coroutine.send, None)

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._coroutine.throw, *error)

    def close(self) -> None:
        self._coroutine.close()

    def _step(self, go: Callable[..., Any], *args: Any) -> Any:
        try:
            try:
                watchdog.enter_thread(self._seat, threading.get_ident())
                return go(*args)
            finally:
                watchdog.leave_thread(self._seat)
        except BaseException as error:
            watchdog.leave_thread(self._seat)  # it may be the way into the first that was struck
            if inspect.getcoroutinestate(self._coroutine) in (inspect.CORO_CREATED, inspect.CORO_SUSPENDED):
                return self._coroutine.throw(error)  # it was struck beside its own lines, and has not heard of it
            raise
