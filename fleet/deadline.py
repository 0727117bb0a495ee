"""A job asks how much of its soft budget is left; the watchdog ends it when nothing is.

`run_within` arms it around an actor's body alone. When the soft budget is used up the watchdog raises
`DeadlineExceeded` in the job's thread, again after 1, 5, 15 s until the job leaves. Disarming happens under the
lock the watchdog raises under and clears a raise that is still pending, so none can strike after the body.

Not guaranteed: CPython delivers such a raise between two bytecodes, so a job inside one long C call (a socket
read, a regular expression) sees it when that call returns. That is what `clamp` is for: a client that clamps its
timeout leaves by itself. Taking the job away from outside is the hard budget's work.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import ParamSpec, TypeVar

from fleet.clock import clock
from fleet.errors import DeadlineExceeded

P = ParamSpec("P")
R = TypeVar("R")

_REPEATS = (1.0, 5.0, 15.0)  # seconds from one raise to the next
_LONGEST_SLEEP = 3600.0
_current = threading.local()
_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc


def remaining() -> timedelta | None:
    """What is left of the soft budget of the job this thread runs (never below zero); None outside a job."""
    ends = getattr(_current, "ends", None)
    return None if ends is None else timedelta(seconds=max(0.0, ends - clock.monotonic()))


def grant(soft: timedelta | None) -> None:
    """Give the next actor body that this thread runs its soft budget; None takes it back."""
    _current.granted = soft


def take_grant() -> timedelta | None:
    """The soft budget granted to this thread, once: an actor called from within a body runs on that body's budget."""
    granted: timedelta | None = getattr(_current, "granted", None)
    _current.granted = None
    return granted


def check() -> None:
    """Raise `DeadlineExceeded` if the soft budget is used up; a cheap call for the head of a loop."""
    left = remaining()
    if left is not None and left <= timedelta(0):
        raise DeadlineExceeded("the soft budget is used up")


def clamp(timeout: timedelta) -> timedelta:
    """The given timeout, cut to what is left of the soft budget.

    Raises `DeadlineExceeded` when nothing is left, so that no call starts that could not end.
    """
    left = remaining()
    if left is None:
        return timeout
    if left <= timedelta(0):
        raise DeadlineExceeded("the soft budget is used up")
    return min(timeout, left)


class Watchdog:
    """Raises `DeadlineExceeded` in the threads whose soft budget is used up; one a process, started at first use.

    Only locks and queues written in C are touched by a watched thread: a raise that strikes inside a lock written
    in Python would leave it taken for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._sleeps_until = 0.0
        self._due: list[tuple[float, int, int, int]] = []  # (instant, number of the arming, thread, raises so far)
        self._armed: dict[int, int] = {}  # thread -> number of its arming
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def arm(self, thread: int, ends: float) -> None:
        """Watch a thread until it is disarmed; `ends` is an instant of `clock.monotonic()`."""
        with self._lock:
            number = self._armed[thread] = next(self._numbers)
            heapq.heappush(self._due, (ends, number, thread, 0))
            wake = ends < self._sleeps_until
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="budget-watchdog", daemon=True)
                self._thread.start()
        if wake:
            self._wake.put(None)

    def disarm(self, thread: int) -> None:
        """Stop watching a thread, and take back a raise that was set but has not struck yet."""
        with self._lock:
            self._armed.pop(thread, None)
            _set_async_exc(ctypes.c_ulong(thread), None)

    def _run(self) -> None:
        while True:
            with self._lock:
                wait = self._strike(clock.monotonic())
            with suppress(Empty):
                self._wake.get(timeout=wait)

    def _strike(self, now: float) -> float:
        """Raise in every thread that is over; returns how long to sleep. Called under the lock."""
        while self._due and self._due[0][0] <= now:
            _, number, thread, raised = heapq.heappop(self._due)
            if self._armed.get(thread) != number:
                continue
            _set_async_exc(ctypes.c_ulong(thread), ctypes.py_object(DeadlineExceeded))
            again = now + _REPEATS[min(raised, len(_REPEATS) - 1)]
            heapq.heappush(self._due, (again, number, thread, raised + 1))
        self._sleeps_until = min(now + _LONGEST_SLEEP, self._due[0][0] if self._due else now + _LONGEST_SLEEP)
        return self._sleeps_until - now


_watchdog = Watchdog()


def run_within(soft: timedelta, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `fn` under a soft budget, in real time, and return what it returns.

    Raises `DeadlineExceeded` if the budget ends first, even in the call's very last instruction; never after.
    """
    thread = threading.get_ident()
    ends = clock.monotonic() + soft.total_seconds()
    _current.ends = ends
    try:
        try:
            _watchdog.arm(thread, ends)
            return fn(*args, **kwargs)
        finally:
            _watchdog.disarm(thread)
    except DeadlineExceeded:  # perhaps on the way into `disarm`; raises are a second apart, so this one is undisturbed
        _watchdog.disarm(thread)
        raise
    finally:
        _current.ends = None


def raised() -> bool:
    return False


def interrupt_bodies(exception: type[BaseException]) -> int:
    return 0
