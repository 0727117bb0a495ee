"""The supervisor's side of a lane's spare: has it fork, and hears how the forks end.

A fork looks like a `subprocess.Popen` to who watches it. When the spare dies its forks die with it: of one alone that
was its doing, of several nobody can say whose, and none is blamed. Nor is any of a spare that the supervisor killed,
because it did not answer.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from fleet.declarations import Lane
from fleet.errors import FleetError
from fleet.logs import get_logger

log = get_logger(__name__)

_STARTS_WITHIN = 2.0  # seconds for a fork: the spare does nothing else


class SpareGone(FleetError):
    """Raised when a fork is asked of a spare that has ended, or does not answer."""


class Fork:
    """A forked process, watched through its spare."""

    def __init__(self, spare: Spare, pid: int) -> None:
        self._spare, self.pid = spare, pid
        self.returncode: int | None = None
        self.blameless = False

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        self._spare.listen()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; `subprocess.TimeoutExpired` after so many seconds."""
        ends = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if ends is not None and time.monotonic() > ends:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(0.005)
        return code


class Spare:
    """A started spare; it is `ready` once everything is imported. `OSError` if the machine has no process to give."""

    def __init__(self, root: Path, lane: Lane, metrics: str) -> None:
        self._channel, theirs = socket.socketpair()
        try:
            with theirs:
                self.process = _started(root, lane, theirs.fileno(), metrics)
        except BaseException:
            self._channel.close()
            raise
        self.ready = self.gone = False
        self._forks: dict[int, Fork] = {}
        self._started: int | None = None
        self._refused: int | None = None
        self._unread = b""

    @property
    def busy(self) -> bool:
        """Whether a fork of it lives, as far as it said."""
        return bool(self._forks)

    def fork(self, board: Path) -> Fork:
        """A process that runs suspects and writes on this board.

        Raises `SpareGone`, or `OSError` if the machine has no process to give; what was forked before then lives on.
        """
        self._started = self._refused = None
        try:
            self._channel.sendall(f"fork {board}\n".encode())
        except OSError:
            self._end()
        ends = time.monotonic() + _STARTS_WITHIN
        while self._started is None and self._refused is None and not self.gone and time.monotonic() < ends:
            self.listen(wait=0.05)
        if self._refused is not None:
            raise OSError(self._refused, os.strerror(self._refused))
        if self._started is None:
            self.close()
            raise SpareGone(f"the spare {self.process.pid} forked nothing within {_STARTS_WITHIN:g} s")
        return self._forks[self._started]

    def listen(self, wait: float = 0.0) -> None:
        """Take in what it said."""
        while not self.gone and select.select([self._channel], [], [], wait)[0]:
            try:
                read = self._channel.recv(65_536)
            except OSError:
                read = b""
            if not read:
                self._end()
                return
            *lines, self._unread = (self._unread + read).split(b"\n")
            for line in lines:
                self._hear(line.decode().split())
            wait = 0.0

    def _hear(self, words: list[str]) -> None:
        match words:
            case ["ready"]:
                self.ready = True
            case ["started", pid]:
                self._started = int(pid)
                self._forks[int(pid)] = Fork(self, int(pid))
            case ["refused", number]:
                self._refused = int(number)
            case ["ended", pid, code]:
                self._forks.pop(int(pid)).returncode = int(code)

    def _end(self, *, blameless: bool = False) -> None:
        """Its forks die with it, by the kernel's hand."""
        self.gone, self.ready = True, False
        for fork in self._forks.values():
            fork.returncode, fork.blameless = -signal.SIGKILL, blameless or len(self._forks) > 1
        self._forks.clear()

    def close(self) -> None:
        """Kill it, and with it what it forked, which is not their doing."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._end(blameless=True)
        self._channel.close()


def _started(root: Path, lane: Lane, channel: int, metrics: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "fleet.workers.spare", "--app", str(root)),
            *("--channel", str(channel), "--parent", str(os.getpid()), lane.name),
        ],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[channel],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": metrics},
    )
