"""Redis restarts, loads, refuses, forgets scripts: consumers are back by themselves within two seconds of it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from fleet.broker import keys
from fleet.broker.broker import NotAccepted
from tests.broker.conftest import OwnRedis
from tests.broker.station import QUEUE, Station, places
from tests.waiting import wait_until

BACK_WITHIN = 2.0


class Work:
    """A worker whose jobs are counted, and the log lines of its process."""

    def __init__(self, station: Station, logs: list[Any]) -> None:
        self.station, self.ran, self._logs = station, Counter[int](), logs
        self.release = threading.Event()
        self.note = station.actor(lambda number: self.ran.update([number]), actor_name="note")
        self.hold = station.actor(self._hold, actor_name="hold")
        station.work(threads=2)
        self.note.send(0)
        self.runs(0)

    def _hold(self, number: int) -> None:
        self.ran[number] += 1
        self.release.wait(20)

    def runs(self, number: int, seconds: float = 10) -> None:
        wait_until(lambda: number in self.ran, seconds)

    def said(self, kind: str) -> list[str]:
        return [line["event"] for line in self._logs if line["event"].startswith(kind)]


@pytest.fixture
def work(own_station: Station) -> Iterator[Work]:
    with capture_logs() as logs:
        yield Work(own_station, logs)


def test_redis_is_killed_and_started_again(work: Work, own_redis: OwnRedis) -> None:
    work.hold.send(1)
    work.runs(1)
    own_redis.kill()
    work.release.set()  # its end has to wait for Redis
    wait_until(lambda: work.said("redis") == ["redis_lost"])
    time.sleep(3.4)  # so that the tries are as far between as they get
    own_redis.start()
    work.note.send(2)
    work.runs(2, BACK_WITHIN)
    work.station.until_empty()
    wait_until(lambda: len(work.said("wake")) == 2)
    assert work.said("redis") == ["redis_lost", "redis_back"]
    assert work.said("wake") == ["wake_lost", "wake_restored"]
    assert set(work.ran.values()) == {1}


def test_a_send_while_redis_is_away_for_a_moment_is_accepted_and_for_long_raises(
    work: Work, own_redis: OwnRedis
) -> None:
    own_redis.kill()
    threading.Timer(0.4, own_redis.start).start()
    work.note.send(1)
    work.runs(1, BACK_WITHIN)
    own_redis.kill()
    with pytest.raises(NotAccepted, match="did not answer"):
        work.note.send(2)
    own_redis.start()
    work.note.send(3)
    work.runs(3, BACK_WITHIN)
    work.station.until_empty()
    assert 2 not in work.ran


def test_every_connection_is_killed_again_and_again(work: Work, own_redis: OwnRedis) -> None:
    with own_redis.client as admin:
        for number in range(1, 31):
            work.note.send(number)
            for kind in ("normal", "pubsub"):
                admin.client_kill_filter(_type=kind, skipme=True)
    work.runs(30, BACK_WITHIN)
    work.station.until_empty()
    assert work.ran == Counter(range(31))


def test_redis_loads_for_a_while(work: Work, own_redis: OwnRedis) -> None:
    with own_redis.client as admin, admin.pipeline(transaction=False) as pipe:
        for number in range(6_000):
            pipe.set(f"filler:{number}", 1)
        pipe.execute()
    own_redis.kill()
    own_redis.start("--key-load-delay", "300", "--loading-process-events-interval-bytes", "1024", wait=False)
    met: list[str] = []
    with own_redis.client as admin:
        while not met or met[-1]:
            try:
                admin.ping()
                met.append("")
            except redis.RedisError as error:
                met.append(type(error).__name__)
            time.sleep(0.02)
    assert "BusyLoadingError" in met
    work.note.send(1)
    work.runs(1, BACK_WITHIN)
    wait_until(lambda: len(work.said("redis")) == 2)
    assert work.said("redis") == ["redis_lost", "redis_back"]


def test_redis_is_busy_with_somebodys_script(work: Work, own_redis: OwnRedis) -> None:
    with own_redis.client as admin, own_redis.client as other:
        admin.config_set("busy-reply-threshold", 20)

        def script() -> None:
            with suppress(redis.RedisError):
                other.eval("while true do end", 0)

        busy = threading.Thread(target=script)
        busy.start()
        wait_until(lambda: work.said("redis") == ["redis_lost"])
        with pytest.raises(NotAccepted, match=r"BUSY|busy"):
            work.note.send(1)
        threading.Timer(0.4, admin.script_kill).start()
        work.note.send(3)  # waits for the script to end
        busy.join()
        work.note.send(2)
        work.runs(2, BACK_WITHIN)
        work.runs(3, BACK_WITHIN)
        wait_until(lambda: work.said("redis") == ["redis_lost", "redis_back"])
        assert 1 not in work.ran


def test_redis_becomes_a_replica_and_a_master_again(work: Work, own_redis: OwnRedis) -> None:
    with own_redis.client as admin:
        before = everything(admin)
        admin.replicaof("127.0.0.1", 1)
        for refused in (lambda: work.note.send(1), lambda: list(many(work))):
            with pytest.raises(NotAccepted, match=r"READONLY|read only"):
                refused()
        wait_until(lambda: work.said("redis") == ["redis_lost"])
        assert everything(admin) == before
        admin.execute_command("REPLICAOF", "NO", "ONE")
        work.note.send(2)
        work.runs(2, BACK_WITHIN)
        wait_until(lambda: work.said("redis") == ["redis_lost", "redis_back"])
    assert 1 not in work.ran


def test_when_memory_is_full_sends_are_refused_whole_and_ends_are_written(work: Work, own_redis: OwnRedis) -> None:
    work.hold.send(1)
    work.runs(1)
    with own_redis.client as admin:
        before = everything(admin)
        with full(admin):
            for refused in (lambda: work.note.send(2), lambda: list(many(work))):
                with pytest.raises(NotAccepted, match=r"OOM|maxmemory"):
                    refused()
            assert everything(admin) == before
            work.release.set()
            wait_until(lambda: places(admin, "own") == {}, BACK_WITHIN)
            assert not admin.hlen(keys.bodies("own", QUEUE))
        work.note.send(3)
        work.runs(3, BACK_WITHIN)
    assert 2 not in work.ran
    assert work.said("redis") == []


def test_redis_forgets_its_scripts_also_while_its_memory_is_full(work: Work, own_redis: OwnRedis) -> None:
    work.hold.send(1)
    work.runs(1)
    with own_redis.client as admin:
        admin.script_flush()
        work.note.send(2)
        work.runs(2, BACK_WITHIN)
        with full(admin):
            admin.script_flush()
            work.release.set()
            wait_until(lambda: places(admin, "own") == {}, BACK_WITHIN)
    assert work.said("redis") == []


def many(work: Work) -> Iterator[Any]:
    return work.station.broker.enqueue_many(work.note.message(1) for _ in range(10))


@contextmanager
def full(admin: redis.Redis) -> Iterator[None]:
    admin.config_set("maxmemory-policy", "noeviction")
    admin.config_set("maxmemory", 1)
    yield
    admin.config_set("maxmemory", 0)


def everything(admin: redis.Redis) -> tuple[Any, ...]:
    """What a send could have written half of."""
    ns = "own"
    waiting, due = admin.lrange(keys.queue(ns, QUEUE), 0, -1), admin.zrange(keys.due(ns, QUEUE), 0, -1)
    return waiting, due, admin.hgetall(keys.bodies(ns, QUEUE))


def test_redis_forgets_what_it_delivered_and_no_later_delivery_is_taken_for_an_earlier_one(
    work: Work, own_redis: OwnRedis
) -> None:
    """As a replica does that is promoted before it heard of it."""
    work.hold.send(1)  # the second delivery of this worker
    work.runs(1)
    own_redis.client.flushall()
    work.note.send(2)
    work.runs(2)
    work.station.until_empty()
    work.hold.send(3)  # the second that this Redis knows of
    work.runs(3)
    work.release.set()
    work.station.until_empty()
    assert own_redis.client.keys("*__acks__*") == []
    (worker,) = work.station.workers
    wait_until(lambda: worker.pump.held == 0)
