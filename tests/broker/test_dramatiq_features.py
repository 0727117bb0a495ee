"""Callbacks, rate limits, coroutines, encoders and options: the same test on Dramatiq's broker and on ours."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import dramatiq
import pytest
from dramatiq import PickleEncoder, QueueJoinTimeout, Retry
from dramatiq.middleware import AsyncIO, CurrentMessage, Shutdown, ShutdownNotifications
from dramatiq.rate_limits import ConcurrentRateLimiter, WindowRateLimiter

from fleet.broker import FleetBroker, bulk
from tests.broker.sides import KEPT_MS, Side
from tests.broker.station import QUEUE
from tests.waiting import wait_until


def add(x: int, y: int) -> int:
    return x + y


def test_callbacks_hear_of_success_of_every_failure_and_of_the_last_one(side: Side) -> None:
    heard: list[tuple[str, str, Any]] = []
    for name in ("won", "lost", "gave_up"):
        side.actor(lambda about, what, name=name: heard.append((name, about["actor_name"], what)), actor_name=name)

    def fail() -> None:
        raise ValueError("shut")

    plus = side.actor(add)
    failing = side.actor(fail, max_retries=1, on_failure="lost", on_retry_exhausted="gave_up")
    side.work(threads=1)
    plus.send_with_options(args=(1, 2), delay=20, on_success=side.broker.get_actor("won"))
    failing.send()
    wait_until(lambda: len(heard) == 4)
    failure = ("lost", "fail", {"type": "ValueError", "message": "shut"})
    assert heard.count(failure) == 2
    assert ("won", "add", 3) in heard
    assert ("gave_up", "fail", {"retries": 1, "max_retries": 1}) in heard


def test_the_current_message_is_known_in_a_job_and_nowhere_else(side: Side) -> None:
    seen: list[str | None] = []

    def note() -> None:
        message = CurrentMessage.get_current_message()
        seen.append(message.message_id if message else None)

    sent = side.actor(note).send()
    side.work()
    side.join()
    assert seen == [sent.message_id]
    assert CurrentMessage.get_current_message() is None


def test_a_coroutine_runs_fails_and_is_tried_again_like_any_job(side: Side) -> None:
    tries: list[int] = []

    async def flaky(n: int) -> int:
        await asyncio.sleep(0)
        tries.append(n)
        if len(tries) < 3:
            raise ValueError("not yet")
        return n + 1

    side.broker.add_middleware(AsyncIO())  # type: ignore[no-untyped-call]
    sent = side.actor(flaky, store_results=True).send(1)
    side.work()
    assert sent.get_result(block=True, timeout=5_000) == 2
    assert tries == [1, 1, 1]
    side.stop()  # ends the event loop's thread


def test_a_concurrency_limit_holds_and_whoever_it_turns_away_comes_again(side: Side) -> None:
    limiter = ConcurrentRateLimiter(side.limits, f"{side.namespace}:one", limit=1, ttl=KEPT_MS)  # type: ignore[no-untyped-call]
    inside, together, ran = threading.Semaphore(1), [], []

    def limited(n: int) -> None:
        with limiter.acquire():
            if not inside.acquire(blocking=False):
                together.append(n)
            time.sleep(0.02)
            ran.append(n)
            inside.release()

    job = side.actor(limited, max_retries=None)
    for n in range(6):
        job.send(n)
    side.work(threads=4)
    wait_until(lambda: len(ran) == 6)
    assert (sorted(ran), together) == ([0, 1, 2, 3, 4, 5], [])


def test_a_window_limit_turns_away_what_is_over_it(side: Side) -> None:
    window = WindowRateLimiter(side.limits, f"{side.namespace}:window", limit=2, window=60)  # type: ignore[no-untyped-call]
    let_in: list[bool] = []

    def limited() -> None:
        with window.acquire(raise_on_failure=False) as acquired:
            let_in.append(acquired)

    job = side.actor(limited)
    for _ in range(5):
        job.send()
    side.work()
    side.join()
    assert sorted(let_in) == [False, False, False, True, True]


def test_a_retry_comes_after_the_delay_that_it_names(side: Side) -> None:
    runs: list[float] = []

    def again() -> None:
        runs.append(time.monotonic())
        if len(runs) == 1:
            raise Retry("later", delay=300)

    side.actor(again).send()
    side.work()
    wait_until(lambda: len(runs) == 2)
    assert 0.3 <= runs[1] - runs[0] < 3


def test_a_worker_that_stops_interrupts_who_asked_for_it_and_the_next_worker_runs_the_job_again(side: Side) -> None:
    ended: list[str] = []

    def long() -> None:
        try:
            ends = time.monotonic() + (10 if not ended else 0)
            ended.append("began")
            while time.monotonic() < ends:
                time.sleep(0.01)
            ended.append("done")
        except Shutdown:
            ended.append("interrupted")
            raise

    side.broker.add_middleware(ShutdownNotifications())  # type: ignore[no-untyped-call]
    side.actor(long, notify_shutdown=True).send()
    side.work(threads=1)
    wait_until(lambda: ended)
    side.stop()
    assert ended == ["began", "interrupted"]
    side.work(threads=1)
    wait_until(lambda: ended[2:] == ["began", "done"])


def test_an_exception_that_was_expected_is_not_tried_again(side: Side) -> None:
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise KeyError("known")

    side.actor(fail, throws=(KeyError, OSError)).send()
    side.work()
    side.join()
    assert (tries, side.dead()) == ([1], 1)


def test_what_was_prefetched_runs_in_order_of_priority(side: Side) -> None:
    ran: list[str] = []
    began, gate = threading.Event(), threading.Event()

    def block() -> None:
        began.set()
        gate.wait(5)

    blocker = side.actor(block, actor_name="blocker")
    actors = [side.actor(lambda name=name: ran.append(name), actor_name=name, priority=p) for p, name in PRIORITIES]
    worker = side.work(threads=1, prefetch=10)
    blocker.send()
    wait_until(began.is_set)
    for actor in actors:
        actor.send()
    wait_until(lambda: worker.work_queue.qsize() == len(actors))
    gate.set()
    wait_until(lambda: len(ran) == len(actors))
    assert ran == ["first", "second", "third"]


PRIORITIES = [(30, "third"), (10, "first"), (20, "second")]


def test_a_join_times_out_and_a_flush_drops_what_waits_and_what_is_delayed(side: Side) -> None:
    ran: list[int] = []
    note = side.actor(ran.append, actor_name="note")
    other = side.actor(ran.append, actor_name="other", queue_name="other")
    for actor in (note, other):
        actor.send(1)
        actor.send_with_options(args=(2,), delay=150)
    with pytest.raises(QueueJoinTimeout):
        side.broker.join(QUEUE, timeout=100)
    side.broker.flush(QUEUE)
    side.broker.join(QUEUE, timeout=100)
    with pytest.raises(QueueJoinTimeout):
        side.broker.join("other", timeout=100)
    side.broker.flush_all()
    side.work()
    note.send_with_options(args=(3,), delay=200)
    other.send_with_options(args=(3,), delay=200)
    wait_until(lambda: len(ran) == 2)
    side.join()
    side.join("other")
    assert ran == [3, 3]


@pytest.fixture
def pickled() -> Iterator[None]:
    before = dramatiq.get_encoder()
    dramatiq.set_encoder(PickleEncoder())
    yield
    dramatiq.set_encoder(before)


@pytest.mark.usefixtures("pickled")
def test_another_encoder_serves_sends_delays_retries_pipelines_and_dead_letters(side: Side) -> None:
    ran: list[Any] = []
    noon = datetime(2026, 1, 2, 12, tzinfo=timezone(timedelta(hours=1)))

    def note(*values: Any) -> set[int]:
        ran.append(values)
        if ran.count(values) == 1 and values[0] == "again":
            raise Retry(delay=10)
        if values[0] == "dead":
            raise ValueError(values)
        return {4}

    job = side.actor(note, max_retries=1)
    job.send("now", {1, 2})
    job.send_with_options(args=("later", noon), delay=30)
    job.send("again", b"\xff")
    job.send("dead", None)
    (job.message("pipe") | job.message("piped")).run()
    side.work()
    side.join()
    for values in (("now", {1, 2}), ("later", noon), ("again", b"\xff"), ("dead", None), ("pipe",), ("piped", {4})):
        assert ran.count(values) == (2 if values[0] in ("again", "dead") else 1), values
    assert side.dead() == 1
    if isinstance(side.broker, FleetBroker):
        assert not bulk.applies()
        assert side.broker.enqueue_calls(job, [("bulk", frozenset({n})) for n in range(3)]) == 3
        wait_until(lambda: sum(values[0] == "bulk" for values in ran) == 3)
