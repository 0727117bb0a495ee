"""What a peer's module is asked on its command line, the same for all.

MODULE send JOB COUNT            one call a message; prints messages a second
MODULE many JOB COUNT            the fastest way the library documents; prints messages a second
MODULE fill QUEUE JOB COUNT ARGS send into a queue without timing (ARGS as a JSON list, "number" in it as the call's)
MODULE paced COUNT LOW HIGH      `stamp`, a pause between LOW and HIGH seconds before each
MODULE trickle QUEUE COUNT PAUSE `stamp` into a queue, a message every PAUSE seconds
MODULE worker THREADS QUEUE…     does not return
MODULE scheduler                 fires `tick` every second; does not return
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol


class Peer(Protocol):
    """One library. `job` is a name of `jobs.JOBS`; a queue stands under the run's namespace."""

    def send(self, queue: str, job: str, *args: Any) -> None:
        """Send one message, as an application would."""

    def send_many(self, queue: str, job: str, calls: Sequence[tuple[Any, ...]]) -> None:
        """Send one a call's arguments, by the fastest way that the library documents."""

    def worker(self, threads: int, queues: Sequence[str]) -> None:
        """Work in this process, or become what does; does not return."""

    def scheduler(self) -> None:
        """Fire `tick` every second; does not return, or exits with a sentence where it cannot."""


QUEUE = "bench"


def main(peer: Peer) -> None:
    """Do what the command line asks, and print what it took as JSON."""
    what, *rest = sys.argv[1:]
    if what == "worker":
        peer.worker(int(rest[0]), rest[1:] or [QUEUE])
    elif what == "scheduler":
        peer.scheduler()
    elif what == "send":
        peer.send(QUEUE, rest[0], 0)  # connects
        _timed(int(rest[1]), lambda: [peer.send(QUEUE, rest[0], number) for number in range(int(rest[1]))])
    elif what == "many":
        peer.send_many(QUEUE, rest[0], [(0,)])
        calls = [(number,) for number in range(int(rest[1]))]
        _timed(len(calls), lambda: peer.send_many(QUEUE, rest[0], calls))
    elif what == "fill":
        queue, job, count, args = rest[0], rest[1], int(rest[2]), json.loads(rest[3])
        calls = [tuple(number if arg == "number" else arg for arg in args) for number in range(count)]
        peer.send_many(queue, job, calls)
    elif what == "paced":
        low, high = float(rest[1]), float(rest[2])
        _stamps(peer, QUEUE, int(rest[0]), lambda: random.uniform(low, high))
    elif what == "trickle":
        _stamps(peer, rest[0], int(rest[1]), lambda: float(rest[2]))


def _timed(count: int, work: Any) -> None:
    began = time.perf_counter()
    work()
    print(json.dumps(count / (time.perf_counter() - began)))


def _stamps(peer: Peer, queue: str, count: int, pause: Any) -> None:
    next_at = time.monotonic()
    for _ in range(count):
        next_at += pause()
        time.sleep(max(0.0, next_at - time.monotonic()))
        peer.send(queue, "stamp", time.monotonic_ns())
    print(json.dumps(count))
