"""Cuts a job off at its soft budget, as a worker's thread does: the body's deadline, then its actor's `on_lost`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from dramatiq import Message

from fleet import deadline
from fleet.errors import DeadlineExceeded

OnLost = Callable[[Message[Any], str], None]


def cut(soft: timedelta, work: Callable[..., object], on_lost: OnLost, *args: Any, token: str) -> None:
    """Run `work(*args, token=token)` until its deadline, which the test fails without."""
    with pytest.raises(DeadlineExceeded) as ended:
        deadline.run_within(soft, work, *args, token=token)
    on_lost(Message("queue", "actor", args, {}, {}, message_id=token), str(ended.value))
