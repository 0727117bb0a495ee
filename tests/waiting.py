"""Waiting on a condition with a limit, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.01


def wait_until(condition: Callable[[], T], seconds: float = 10.0) -> T:
    """Call `condition` until it returns something true, and return that; `AssertionError` after `seconds`."""
    ends = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < ends, f"still {found!r} after {seconds} s"
        time.sleep(_POLL_SECONDS)
