"""What the handler of a signal rings and the main thread waits for: of `threading.Event` what that needs, and no lock.

An `Event` takes a lock that is written in Python. A handler runs in the main thread, between any two bytecodes; where
those are of a wait for the same event, it would wait for what its own thread holds, for ever, and so would the handler
of a second signal. A `SimpleQueue` is written in C, and something may be put into it at any instant.

Not guaranteed: that a thread which waits notices a bell that is cleared before it looked.
"""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue


class Bell:
    """See the module. Any thread may use it, and a signal's handler."""

    def __init__(self) -> None:
        self._set = False
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Wake everybody who waits, now and until it is cleared."""
        self._set = True
        self._wakes.put(None)

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it is set by then, in real seconds; without a limit it waits until it is."""
        ends = None if seconds is None else time.monotonic() + seconds
        while not self._set:
            try:
                self._wakes.get(timeout=None if ends is None else max(0.0, ends - time.monotonic()))
            except Empty:
                return self._set
            if self._set:
                self._wakes.put(None)  # it wakes one: the next who waits
        return True
