"""Wait on a condition with a limit; a test never sleeps and hopes."""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], seconds: float = 30.0) -> T:
    """The first true answer of `condition`, asked every 20 ms.

    Raises `AssertionError` with the last answer when there is none in time.
    """
    ends = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= ends:
            faulthandler.dump_traceback()  # what hangs is seen in the test's standard error
            raise AssertionError(f"not within {seconds} s; the last answer was {answer!r}")
        time.sleep(0.02)
