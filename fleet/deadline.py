"""A job asks how much of its soft budget is left; the watchdog ends it when nothing is.

`run_within` arms it around an actor's body alone. When the soft budget is used up `DeadlineExceeded` is raised where
the body runs, again after 1, 5, 15 s until it leaves: in its thread, or by cancelling its coroutine where it waits.
Disarming happens under the lock the watchdog raises under and clears a raise that is still pending, so none can strike
after the body. The exception says how far the job came (`fleet.progress`).

Not guaranteed: CPython delivers such a raise between two bytecodes, so a job inside one long C call (a socket
read, a regular expression) sees it when that call returns. That is what `clamp` is for: a client that clamps its
timeout leaves by itself. Taking the job away from outside is the hard budget's work.

Nor that a raise leaks no lock. One that strikes between `lock.acquire()` and its `try`, inside a `__enter__` or a
`@contextmanager` written in Python, leaves it taken; `with` on a lock of C is safe up to Python 3.13. The engine's own
calls (Redis, the database's pool, logging) stand behind `shielded`; a job's own and other libraries' do not. So a child
in which one was `raised` retires after its other jobs.

Nor anything in a process that a body forks. It is outside of the job, without what is left of its budget; it ends where
the body ends it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import ParamSpec, TypeVar

from fleet.clock import clock
from fleet.errors import DeadlineExceeded
from fleet.watchdog import Run, Seat, watchdog

P = ParamSpec("P")
R = TypeVar("R")

_granted = threading.local()
_run: ContextVar[Run | None] = ContextVar("fleet_run", default=None)
"""A context variable, so that a coroutine and its tasks find the run of the thread that waits for them."""


def current_run() -> Run | None:
    """The run that the caller is part of; None outside a job."""
    run = _run.get()
    return run if run is not None and run.active else None


def remaining() -> timedelta | None:
    """What is left of the soft budget of the job this thread runs (never below zero); None outside a job."""
    run = current_run()
    return None if run is None else timedelta(seconds=max(0.0, run.ends - clock.monotonic()))


def grant(soft: timedelta | None) -> None:
    """Give the next actor body that this thread runs its soft budget; None takes it back."""
    _granted.soft = soft


def take_grant() -> timedelta | None:
    """The soft budget granted to this thread, once: an actor called from within a body runs on that body's budget."""
    granted: timedelta | None = getattr(_granted, "soft", None)
    _granted.soft = None
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


def raised() -> bool:
    """Whether a deadline was ever raised in a thread of this process, not left by `check` or `clamp`."""
    return watchdog.raised


def interrupt_bodies(exception: type[BaseException]) -> int:
    """Have this raised in every body that runs now, within a second; returns how many there are.

    Hooks are not struck, and neither is a body before its shield is down.
    """
    return watchdog.interrupt(exception)


class shielded:  # it is used like a function
    """`with shielded():` no raise strikes in the block; one that is due strikes when it is left.

    For short calls that take locks written in Python. A block that waits clamps its own timeouts.
    """

    __slots__ = ("_seat",)

    def __enter__(self) -> None:
        run = _run.get()
        self._seat: Seat | None = run.seat if run is not None else None
        if self._seat is not None:
            watchdog.shield(self._seat)

    def __exit__(self, *_: object) -> None:
        if self._seat is not None:
            watchdog.unshield(self._seat)


def run_within(soft: timedelta, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `fn` under a soft budget, in real time, and return what it returns.

    Within another run the shorter budget holds. Raises `DeadlineExceeded` if the budget ends first, even in the call's
    very last instruction; never after. Its text is the job's outcome: "timed out after 340 of 1772".
    """
    outer = current_run()
    started = clock.monotonic()
    ends = started + soft.total_seconds()
    if outer is not None and outer.ends <= ends:
        return fn(*args, **kwargs)
    seat = outer.seat if outer is not None else Seat(threading.get_ident())
    run = Run(seat, started, ends, outer)
    _run.set(run)
    try:
        try:
            watchdog.arm(run)
            result = fn(*args, **kwargs)
        finally:
            watchdog.disarm(run)
    except BaseException as error:
        watchdog.disarm(run)  # it may be the way into the first that was struck; raises are a second apart
        if isinstance(error, DeadlineExceeded):
            error.args = (_outcome(run),)
        raise
    finally:
        _run.set(outer)
    if outer is not None:
        check()  # disarming may have taken back a raise of the outer budget's
    return result


def _outcome(run: Run) -> str:
    """`timed out after 340 of 1772`, or for how long it ran where nothing was published."""
    seconds = clock.monotonic() - run.started
    took = f"after {seconds:.0f} s" if seconds >= 10 else f"after {seconds:.1f} s"
    return f"timed out {run.progress or took}"
