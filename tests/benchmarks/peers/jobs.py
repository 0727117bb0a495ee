"""The jobs that every peer runs, and what they note in Redis. Needs redis-py alone, in each peer's own environment.

What a job notes is gathered in its process and written every 20 ms: noting costs no job a round trip. A process
that is killed takes its last 20 ms of notes with it.
"""

from __future__ import annotations

import os
import threading
import time

import redis

URL = os.environ.get("BENCH_URL", "redis://127.0.0.1:6379/0")
NAMESPACE = os.environ.get("BENCH_NAMESPACE", "bench")
"""Of the peer's own keys where it can be told, and of ours; the notes stand under it."""
_KINDS = ("done", "starts", "latencies", "fires", "pids")
DONE, STARTS, LATENCIES, FIRES, PIDS = (f"{NAMESPACE}:notes:{what}" for what in _KINDS)
_WRITE_SECONDS = 0.02
_HELLO_SECONDS = 0.02


class _Notes:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = 0
        self._lists: dict[str, list[str]] = {}
        self._owner = 0

    def add(self, key: str | None, value: str = "", done: int = 1) -> None:
        """Note a value, and that a job is done."""
        with self._lock:
            self._done += done
            if key is not None:
                self._lists.setdefault(key, []).append(value)
            if self._owner != os.getpid():  # some peers fork a process a job
                self._owner = os.getpid()
                threading.Thread(target=self._write, daemon=True).start()

    def _write(self) -> None:
        client = redis.Redis.from_url(URL)
        while True:
            time.sleep(_WRITE_SECONDS)
            with self._lock:
                done, self._done = self._done, 0
                lists, self._lists = self._lists, {}
            if done or lists:
                pipe = client.pipeline(transaction=False)
                pipe.incrby(DONE, done)
                for key, values in lists.items():
                    pipe.rpush(key, *values)
                pipe.execute()


_notes = _Notes()


def noop(number: int = 0) -> None:
    """Nothing."""
    _notes.add(None)


def hello() -> None:
    """Note which process did it, and take long enough that one process seldom does all of a few."""
    time.sleep(_HELLO_SECONDS)
    _notes.add(PIDS, str(os.getpid()))


def nap(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)
    _notes.add(None)


def napped() -> None:
    """What is noted after a wait that an event loop did."""
    _notes.add(None)


def burn(seconds: float) -> None:
    """Hold the processor."""
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        pass
    _notes.add(None)


def stamp(sent: int) -> None:
    """Note how long ago, by the machine's monotonic clock, it was sent."""
    _notes.add(LATENCIES, str((time.monotonic_ns() - sent) / 1e6))


def long(number: int, seconds: float) -> None:
    """Note that it started, by a write of its own that nothing takes back, and wait."""
    started(number)
    time.sleep(seconds)
    _notes.add(None)


def started(number: int) -> None:
    redis.Redis.from_url(URL).rpush(STARTS, f"{number}:{time.monotonic():.3f}")


def tick() -> None:
    """A schedule's job: note when it ran."""
    redis.Redis.from_url(URL).rpush(FIRES, f"{time.time():.3f}")


JOBS = {"noop": noop, "hello": hello, "nap": nap, "burn": burn, "stamp": stamp, "long": long, "tick": tick}
