"""Tie a process's life to its parent's, on Linux; elsewhere nothing happens and an orphan lives on."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: signal.Signals, parent: int | None = None) -> None:
    """Have the kernel send this signal when the parent ends, by whatever end.

    `parent` is who started this process, as it said itself: one that was killed while the interpreter started here is
    gone before anybody can ask who it was, and its child would live on.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid() if parent is None else parent
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os.kill(os.getpid(), number)


def follow(parent: int | None) -> None:
    """End by SIGTERM with whoever started this process for himself, as `FLEET_PARENT` says; None follows nobody.

    What this process starts does not inherit it: it is nobody's word that they should end with him.
    """
    if parent is not None:
        os.environ.pop("FLEET_PARENT", None)
        die_with_parent(signal.SIGTERM, parent)
