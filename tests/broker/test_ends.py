"""Whatever breaks around a job, its message ends as done, retry or dead letter, and its thread works on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq.middleware import Middleware, Retries, SkipMessage, TimeLimit

from tests.broker.station import QUEUE, Station, places, stock
from tests.conftest import ROOT
from tests.waiting import wait_until

Keep = Callable[[Station], Station]
THREAD_DIES = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


class Strike(BaseException):
    """What a time limit raises: `except Exception` does not see it."""


class SlowOnce(Middleware):
    """Spends its first call after a job in a way that a raise from outside can strike."""

    def __init__(self) -> None:
        self.calls = 0

    def after_process_message(self, *_: Any, **__: Any) -> None:
        self.calls += 1
        ends = time.monotonic() + (2 if self.calls == 1 else 0)
        while time.monotonic() < ends:
            time.sleep(0.01)


def limits() -> list[Middleware]:
    """After a job they are called from last to first: the limit is still armed while the slow one runs."""
    limit = TimeLimit(time_limit=500, interval=10)  # type: ignore[no-untyped-call]
    return [limit, Retries(min_backoff=1, max_backoff=2), SlowOnce()]  # type: ignore[no-untyped-call]


@THREAD_DIES
@pytest.mark.alone
def test_a_time_limit_that_strikes_in_an_after_hook_loses_stocks_message_and_thread_and_none_of_ours(
    redis_url: str, redis_client: redis.Redis, namespace: str, stations: Keep
) -> None:
    theirs = stock(redis_url, f"{namespace}:stock", *limits())
    runs: Counter[str] = Counter()

    def fails_once(whose: str) -> None:
        runs[whose] += 1
        if runs[whose] == 1:
            raise ValueError("the bank is shut")

    dramatiq.actor(fails_once, broker=theirs, queue_name=QUEUE).send("stock")
    stock_worker = dramatiq.Worker(theirs, worker_timeout=50, worker_threads=1)
    theirs.emit_after("process_boot")  # starts the limit's clock
    stock_worker.start()
    wait_until(lambda: not stock_worker.workers[0].is_alive())
    assert runs["stock"] == 1
    assert places(redis_client, f"{namespace}:stock") == {}
    stock_worker.stop()

    station = stations(Station(redis_url, namespace))
    for middleware in limits():
        station.broker.middleware[:] = [m for m in station.broker.middleware if type(m) is not type(middleware)]
        station.broker.add_middleware(middleware)
    station.actor(fails_once).send("ours")
    station.broker.emit_after("process_boot")
    worker = station.work(threads=1)
    station.until_empty()
    assert runs["ours"] == 2
    assert worker.workers[0].is_alive()
    assert worker.ends["done"] == 1


class Unencodable(Middleware):
    """Leaves in the options of a message what no encoder takes."""

    def before_process_message(self, broker: dramatiq.Broker, message: dramatiq.MessageProxy) -> None:
        message.options["seen_by"] = self


def test_a_retry_that_cannot_be_enqueued_loses_stocks_message_and_ours_is_a_dead_letter(
    redis_url: str, redis_client: redis.Redis, namespace: str, stations: Keep
) -> None:
    runs: Counter[str] = Counter()

    def fails(whose: str) -> None:
        runs[whose] += 1
        raise ValueError("the bank is shut")

    theirs = stock(redis_url, f"{namespace}:stock", Retries(), Unencodable())  # type: ignore[no-untyped-call]
    dramatiq.actor(fails, broker=theirs, queue_name=QUEUE).send("stock")
    stock_worker = dramatiq.Worker(theirs, worker_timeout=50, worker_threads=1)
    stock_worker.start()
    wait_until(lambda: places(redis_client, f"{namespace}:stock") == {})
    stock_worker.stop()
    assert runs["stock"] == 1

    station = stations(Station(redis_url, namespace, Unencodable()))
    station.actor(fails).send("ours")
    station.work(threads=1)
    station.until_empty()
    assert runs["ours"] == 3
    (letter,) = [json.loads(raw) for raw in station.letters().values()]
    assert letter["reason"] == "hook"


class Breaks(Middleware):
    """Raises in one hook, the first so many times; skips messages of the actor `skipped`."""

    def __init__(self, hook: str, error: type[BaseException], times: int) -> None:
        self.left, self._error = times, error
        own = getattr(self, hook)

        def broken(*args: Any, **kwargs: Any) -> None:
            own(*args, **kwargs)
            if self.left and args[1].actor_name != "neighbour":
                self.left -= 1
                raise self._error(hook)

        setattr(self, hook, broken)

    def before_process_message(self, broker: dramatiq.Broker, message: dramatiq.MessageProxy) -> None:
        if message.actor_name == "skipped":
            raise SkipMessage


CASES = [
    *[(hook, "fine") for hook in ("before_process_message", "after_process_message", "before_ack", "after_ack")],
    *[(hook, "failing") for hook in ("before_process_message", "after_process_message", "before_nack", "after_nack")],
    *[(hook, "skipped") for hook in ("after_skip_message", "before_ack", "after_ack")],
    *[(hook, "retried") for hook in ("before_enqueue", "after_enqueue", "after_process_message", "before_ack")],
]


class Case:
    """One hook that breaks around one kind of message, beside a neighbour on the same single thread."""

    def __init__(self, station: Station, breaks: Breaks, kind: str, times: int) -> None:
        self.station, self.kind, self.runs = station, kind, Counter[str]()
        jobs = {"fine": self._fine, "failing": self._failing, "retried": self._retried, "skipped": self._fine}
        actors = {
            name: station.actor(job, actor_name=name, max_retries=5 if name == "retried" else 0)
            for name, job in jobs.items()
        }
        neighbour = station.actor(lambda: self.runs.update(["neighbour"]), actor_name="neighbour")
        actors[kind].send()
        breaks.left = times
        neighbour.send()
        self.worker = station.work(threads=1)

    def _fine(self) -> None:
        self.runs["fine"] += 1

    def _failing(self) -> None:
        self.runs["failing"] += 1
        raise KeyError("a job")

    def _retried(self) -> None:
        self.runs["retried"] += 1
        if self.runs["retried"] == 1:
            raise KeyError("a job")

    def judge(self, said: str) -> None:
        self.station.until_empty()
        ends = self.worker.ends
        said = f"{said}: {self.runs}, {ends}"
        assert self.worker.workers[0].is_alive(), said
        assert self.runs["neighbour"] == 1, said
        wait_until(lambda: sum(ends[end] for end in ("done", "drop", "dead")) == 2)
        assert ends["stale"] == 0, said
        if ends["done"] == 2:  # said only of what ran to its end
            assert self.runs["fine"] or self.runs["retried"] > 1, said
        if self.kind == "failing":
            assert ends["dead"] == 1, said


@pytest.mark.parametrize("error", [ValueError, Strike])
@pytest.mark.parametrize("times", [1, 1_000_000])
def test_whatever_hook_breaks_the_message_ends_and_no_thread_does(
    error: type[BaseException], times: int, redis_url: str, namespace: str, stations: Keep
) -> None:
    cases: dict[str, Case] = {}
    for hook, kind in CASES:
        breaks = Breaks(hook, error, 0)
        station = stations(Station(redis_url, f"{namespace}:{hook}:{kind}", breaks))
        cases[f"{hook} of {kind}"] = Case(station, breaks, kind, times)
    for said, case in cases.items():
        case.judge(said)


def test_a_hook_that_breaks_over_a_message_a_job_sends_does_not_run_the_job_again(
    redis_url: str, namespace: str, stations: Keep
) -> None:
    breaks = Breaks("after_enqueue", ValueError, 0)
    station = stations(Station(redis_url, namespace, breaks))
    ran: list[int] = []
    note = station.actor(ran.append, actor_name="note")

    def sends() -> None:
        ran.append(0)
        breaks.left = 1
        note.send(1)

    station.actor(sends, actor_name="sends").send()
    station.work()
    station.until_empty()
    assert sorted(ran) == [0, 1]


class StrikesAtALine(Middleware):
    """Raises in the thread's own `process_message`, at the n-th line that it runs after the hooks of a job."""

    nth = 0
    struck = False

    def after_process_message(self, *_: Any, **__: Any) -> None:
        if self.struck or not self.nth:
            return
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_name != "process_message":
            frame = frame.f_back
        assert frame is not None
        left = self.nth

        def trace(_frame: FrameType, event: str, _arg: object) -> Any:
            nonlocal left
            left -= event == "line"
            if left == 0:
                sys.settrace(None)
                self.struck = True
                raise Strike("between two lines")
            return trace

        frame.f_trace = trace
        sys.settrace(lambda *_: None)


def strike_between_any_two_lines(redis_url: str, namespace: str) -> None:
    strikes = StrikesAtALine()
    station = Station(redis_url, namespace, strikes)
    ran: list[int] = []
    note = station.actor(ran.append, actor_name="note")
    worker = station.work(threads=1)
    struck = 0
    for nth in range(1, 10):
        strikes.nth, strikes.struck = nth, False
        note.send(nth)
        station.until_empty()
        struck += strikes.struck
        assert worker.workers[0].is_alive()
        wait_until(lambda: worker.pump.held == 0)
    assert struck >= 3
    assert set(ran) == set(range(1, 10))
    station.stop()


def test_a_raise_that_strikes_between_any_two_lines_of_the_thread_ends_neither_it_nor_strands_the_message(
    redis_url: str, namespace: str
) -> None:
    """In a process of its own.

    While a raise waits for any thread of a process that is blocked, CPython 3.11 spins for ever in a thread that is
    traced; and tests before this one leave such threads behind.
    """
    asked = f"from tests.broker import test_ends; test_ends.strike_between_any_two_lines({redis_url!r}, {namespace!r})"
    subprocess.run([sys.executable, "-c", asked], cwd=ROOT, check=True, timeout=120)
