"""The loop that fires: rings, the pass every second, and what it says of itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
import redis
from structlog.testing import capture_logs

from beat import firing as loop
from beat.firing import Firing
from beat.now import Now
from fleet.clock import clock
from tests.waiting import wait_until


class Recorder:
    """Keeps the passes it was asked for; the next one raises or waits, if a test says so."""

    def __init__(self) -> None:
        self.passes: list[list[str] | None] = []
        self.raises: Exception | None = None
        self.hears: Callable[[], object] = lambda: None
        self.go_on = threading.Event()
        self.go_on.set()

    def pass_over(self, names: Iterable[str] | None = None) -> None:
        self.passes.append(None if names is None else list(names))
        self.go_on.wait(30)
        self.hears()
        error, self.raises = self.raises, None
        if error:
            raise error


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def fire(recorder: Recorder) -> Iterator[Callable[..., Firing]]:
    """Start the loop in a thread of its own; it is stopped afterwards."""
    running: list[tuple[Firing, threading.Thread]] = []

    def start(now: Now | None = None, **more: Callable[[], None]) -> Firing:
        firing = Firing(recorder, now or Now(), **more)
        thread = threading.Thread(target=firing.run, name="firing")
        thread.start()
        running.append((firing, thread))
        return firing

    yield start
    recorder.go_on.set()
    for firing, thread in running:
        firing.stop()
        thread.join(5)
        assert not thread.is_alive()


def test_entries_that_ring_all_the_time_do_not_keep_the_beat_from_passing_over_all(
    fire: Callable[..., Firing], recorder: Recorder
) -> None:
    """An entry whose ring came while Redis was away has only the ordinary pass to be fired by."""
    firing = fire()
    ends = time.monotonic() + 3.5
    while time.monotonic() < ends:
        firing.ring("busy")
        time.sleep(0.05)
    assert 3 <= recorder.passes.count(None) <= 5
    assert recorder.passes.count(["busy"]) > 30, "and rings are answered as before"


def test_entries_that_rang_at_one_instant_are_judged_together(fire: Callable[..., Firing], recorder: Recorder) -> None:
    recorder.go_on.clear()
    firing = fire()
    wait_until(lambda: recorder.passes)
    for number in range(500):
        firing.ring(f"entry-{number}")
        firing.ring("entry-0")
    recorder.go_on.set()
    wait_until(lambda: len(recorder.passes) > 1)
    assert recorder.passes[1] in ([f"entry-{number}" for number in range(500)], None)
    assert len(recorder.passes) <= 3


def test_a_stop_does_not_wait_behind_the_rings_of_ten_thousand_entries(
    fire: Callable[..., Firing], recorder: Recorder
) -> None:
    recorder.go_on.clear()
    firing = fire()
    wait_until(lambda: recorder.passes)
    for number in range(10_000):
        firing.ring(f"entry-{number}")
    firing.stop()
    recorder.go_on.set()
    wait_until(lambda: not any(thread.name == "firing" for thread in threading.enumerate()), 2)
    assert len(recorder.passes) == 1


@pytest.mark.parametrize("error", [RuntimeError("a fault of ours"), redis.ConnectionError("gone")])
def test_whatever_a_pass_raises_the_next_one_comes(
    fire: Callable[..., Firing], recorder: Recorder, error: Exception
) -> None:
    recorder.raises = error
    with capture_logs() as logs:
        firing = fire()
        wait_until(lambda: len(recorder.passes) >= 2 and firing.ready() is None)
    assert logs[0]["event"] in ("beat_pass_broke", "beat_cannot_fire")


def test_a_replica_is_ready_once_it_went_over_the_schedule_and_while_that_is_young(
    fire: Callable[..., Firing], recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_STALE_SECONDS", 2.0)
    recorder.go_on.clear()
    firing = fire()
    assert firing.ready() == "no pass over the schedule yet: Redis away or just started"
    recorder.go_on.set()
    wait_until(lambda: firing.ready() is None)
    recorder.go_on.clear()
    said = wait_until(firing.ready, 4)
    assert said.endswith("s ago: Redis away or thread hung")


def refuse() -> None:
    raise redis.ConnectionError("gone")


def test_a_loop_that_hangs_is_told_and_one_that_only_fails_is_not(
    fire: Callable[..., Firing], recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_HUNG_SECONDS", 2.0)
    recorder.hears = refuse
    firing = fire()
    ends = time.monotonic() + 2.5
    while time.monotonic() < ends:
        assert firing.healthy() is None
        time.sleep(0.05)
    assert len(recorder.passes) >= 2
    recorder.go_on.clear()
    firing.ring("one")
    assert "firing has hung for" in wait_until(firing.healthy, 4)


def test_while_the_servers_clock_is_doubted_the_replica_is_not_ready(
    fire: Callable[..., Firing], recorder: Recorder, redis_client: redis.Redis
) -> None:
    now = Now()
    real = datetime.now(UTC).timestamp()
    now.heard(real + 3600, clock.monotonic(), clock.monotonic())  # the server was an hour ahead, and came back
    recorder.hears = lambda: now.ask(redis_client.time)
    firing = fire(now)
    wait_until(lambda: "jumped by -1:00:00" in (firing.ready() or ""))
    wait_until(lambda: len(recorder.passes) >= 2)
    assert "jumped by -1:00:00" in (firing.ready() or ""), "its passes hear the clock, and judge nothing"


def test_a_clock_that_moved_has_the_alarm_set_again(
    fire: Callable[..., Firing], recorder: Recorder, redis_client: redis.Redis
) -> None:
    moved: list[int] = []
    off = timedelta(0)
    now = Now(wall=lambda: datetime.now(UTC) + off)
    recorder.hears = lambda: now.ask(redis_client.time)
    fire(now, clock_moved=lambda: moved.append(1))
    wait_until(lambda: len(recorder.passes) >= 2)
    assert len(moved) == 1, "when the server's time was first known"
    off = timedelta(hours=1)
    wait_until(lambda: len(moved) == 2)
