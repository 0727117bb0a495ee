"""Raises in the threads, and cancels the coroutines, whose soft budget is used up; one a process, started at first use.

Where a body can be struck stands in its *seat*: the thread it runs on, its task between two steps of a coroutine, or
nowhere yet. Every change of seat is made under the lock that the watchdog strikes under, so a raise meant for a body
strikes that body and nothing else. A raise that finds no place (shielded, on its way to a loop) waits in the seat.

Not guaranteed: CPython delivers a raise between two bytecodes, so a body inside one long C call sees it when that call
returns. Only locks and queues written in C are touched by a watched thread: a raise that strikes inside a lock written
in Python would leave it taken for ever. If striking one body fails, the others are struck nevertheless.

A process that a body forks is outside of its job: nothing strikes it there but in what it runs under a budget itself.

Garbage may be collected while a thread holds the lock, and what is then finalized may come back here: a connection that
nobody closed returns to its pool, shielded. So the lock is one that its holder can take again. Not guaranteed: that
nobody waits for such a connection's last round trip.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import itertools
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from fleet import metrics
from fleet.clock import clock
from fleet.errors import DeadlineExceeded
from fleet.logs import get_logger

log = get_logger(__name__)

REPEATS = (1.0, 5.0, 15.0)  # seconds from one raise to the next
APART = 1.0  # between any two raises in one body, so that one of them can be handled undisturbed
_LONGEST_SLEEP = 3600.0
_DROPPED = 1_000  # strikes of bodies that ended in time, kept before they are swept out
_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


@dataclass(eq=False, slots=True)
class Seat:
    """Where a body can be struck now; `thread` is None while it waits in a loop, `shields` counts open shields."""

    thread: int | None
    shields: int = 0
    waiting: type[BaseException] | None = None
    loop: asyncio.AbstractEventLoop | None = None
    task: asyncio.Task[object] | None = None
    struck: type[BaseException] | None = None
    struck_at: float = float("-inf")


@dataclass(eq=False, slots=True)
class Run:
    """One call under a soft budget. Instants are `clock.monotonic()`'s; a nested run shares its outer one's seat."""

    seat: Seat
    started: float
    ends: float
    outer: Run | None = None
    active: bool = False
    raised: int = 0
    planned: int = -1  # the number of its next strike
    progress: str = ""

    @property
    def first_strike(self) -> float:
        """A little after `ends`: what clamped its timeout leaves by itself, and no lock of its child is in doubt."""
        return self.ends + min(0.1, (self.ends - self.started) / 10)


class Watchdog:
    """See the module. `raised` is whether a raise was ever set in a thread."""

    def __init__(self) -> None:
        self._runs: set[Run] = set()
        self.raised = False
        self.begin_anew()

    def begin_anew(self) -> None:
        """As a forked process has to: no thread of its parent's is there, were it one that holds the lock."""
        for run in self._runs:
            run.active, run.seat.waiting = False, None
        self._runs = set()
        self._lock = threading.RLock()  # see the module
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._sleeps_until = 0.0
        self._due: list[tuple[float, int]] = []  # instant, and number of the strike
        self._strikes: dict[int, tuple[Run, type[BaseException]]] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def arm(self, run: Run) -> None:
        """Watch a run until it is disarmed."""
        at = run.first_strike
        with self._lock:
            run.active = True
            self._runs.add(run)
            self._plan(at, run, DeadlineExceeded)
            if len(self._due) > 4 * len(self._strikes) + _DROPPED:
                due = [one for one in self._due if one[1] in self._strikes]
                heapq.heapify(due)
                self._due = due
            wake = at < self._sleeps_until
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="budget-watchdog", daemon=True)
                self._thread.start()
        if wake:
            self._wake.put(None)

    def disarm(self, run: Run) -> None:
        """Stop watching a run, and take back a raise that was set but has not struck yet."""
        with self._lock:
            run.active = False
            self._runs.discard(run)
            self._strikes.pop(run.planned, None)
            run.seat.waiting = None
            if run.seat.thread is not None:
                _raise_in(ctypes.c_ulong(run.seat.thread), None)

    def watched(self) -> int:
        """How many runs are watched now."""
        return len(self._runs)

    def shield(self, seat: Seat) -> None:
        """Hold raises back until `unshield`."""
        with self._lock:
            _struck_now()
            seat.shields += 1

    def unshield(self, seat: Seat) -> None:
        """Let raises through again, the one that was held back before all."""
        with self._lock:
            seat.shields -= 1
            if not seat.shields:
                self._deliver_waiting(seat)

    def leave_thread(self, seat: Seat) -> None:
        """The body leaves the thread that it can be struck on."""
        with self._lock:
            _struck_now()
            seat.thread = None

    def enter_thread(self, seat: Seat, thread: int) -> None:
        """The body runs on this thread from now on."""
        with self._lock:
            seat.thread = thread
            self._deliver_waiting(seat)

    def enter_task(self, seat: Seat, loop: asyncio.AbstractEventLoop | None, task: asyncio.Task[object] | None) -> None:
        """The body is this task of this loop from now on; None and None when it is over."""
        with self._lock:
            seat.loop, seat.task = loop, task
            self._deliver_waiting(seat)

    def interrupt(self, exception: type[BaseException]) -> int:
        """Raise this in every body that runs now; returns how many there are."""
        with self._lock:
            bodies = [run for run in self._runs if run.outer is None]
            now = clock.monotonic()
            for run in bodies:
                self._plan(max(now, run.seat.struck_at + APART), run, exception)
        self._wake.put(None)
        return len(bodies)

    def _watch(self) -> None:
        while True:
            struck: list[bool] = []
            wait = APART
            try:
                with self._lock:
                    self._strike(clock.monotonic(), struck)
                    wait = max(0.0, self._sleeps_until - clock.monotonic())
                for again in struck:
                    metrics.deadline_raised(again)
            except Exception:  # without this thread no budget of this process would hold
                log.exception("watchdog_broke")
            with suppress(Empty):
                self._wake.get(timeout=wait)

    def _strike(self, now: float, struck: list[bool]) -> None:
        """Raise in every body that is over; notes for each whether it was one again. Called under the lock."""
        while self._due and self._due[0][0] <= now:
            _, number = heapq.heappop(self._due)
            run, exception = self._strikes.pop(number, (None, DeadlineExceeded))
            if run is None or not run.active:
                continue
            if run.seat.struck_at + APART > now:
                self._plan(run.seat.struck_at + APART, run, exception)
                continue
            self._deliver(run.seat, exception)
            if exception is DeadlineExceeded:
                struck.append(run.raised > 0)
                self._plan(now + REPEATS[min(run.raised, len(REPEATS) - 1)], run, exception)
                run.raised += 1
        longest = now + _LONGEST_SLEEP
        self._sleeps_until = min(longest, self._due[0][0]) if self._due else longest

    def _plan(self, at: float, run: Run, exception: type[BaseException]) -> None:
        number = next(self._numbers)
        self._strikes[number] = run, exception
        if exception is DeadlineExceeded:
            run.planned = number
        heapq.heappush(self._due, (at, number))

    def _deliver(self, seat: Seat, exception: type[BaseException]) -> None:
        seat.struck = exception
        if seat.shields or (seat.thread is None and seat.task is None):
            seat.waiting = exception
            return
        seat.struck_at = clock.monotonic()
        if seat.thread is not None:
            self.raised = True
            _raise_in(ctypes.c_ulong(seat.thread), ctypes.py_object(exception))
        elif seat.loop is not None and seat.task is not None:
            with suppress(RuntimeError):  # the loop is closed, and the task with it
                seat.loop.call_soon_threadsafe(seat.task.cancel)

    def _deliver_waiting(self, seat: Seat) -> None:
        exception, seat.waiting = seat.waiting, None
        if exception is not None:
            self._deliver(seat, exception)


def _struck_now() -> None:
    """A raise that is set for the calling thread strikes here, in the call; none is set while the lock is held."""


watchdog = Watchdog()
"""The process's one."""
os.register_at_fork(after_in_child=watchdog.begin_anew)
