"""Delayed messages go back to stock Dramatiq and come again: each is in one place, with its own due time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dramatiq
import pytest
import redis
from typer.testing import CliRunner

from fleet import cli_broker
from fleet.broker import keys
from fleet.broker.export import CHUNK, Exported, StillServed, delayed, export, require_nobody_serves
from tests.broker.process import process
from tests.broker.proxy import Proxy
from tests.broker.station import LOST_AFTER, QUEUE, Station, places, stock
from tests.waiting import wait_until

Keep = Callable[[Station], Station]
HOUR_MS = 3_600_000


def exported(station: Station) -> Exported:
    return sum(export(station.broker, QUEUE), Exported())


def test_a_stock_worker_runs_what_was_exported_when_it_is_due(
    station: Station, redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    ran: list[tuple[int, float]] = []
    note = station.actor(print, actor_name="note")
    sent = time.time()
    note.send_with_options(args=(1,), delay=1_500)
    note.send_with_options(args=(2,), delay=30)
    note.send_with_options(args=(3,), delay=HOUR_MS)
    assert exported(station) == Exported(moved=3)
    theirs = stock(redis_url, namespace)
    dramatiq.actor(lambda n: ran.append((n, time.time())), broker=theirs, queue_name=QUEUE, actor_name="note")
    worker = dramatiq.Worker(theirs, worker_threads=1, worker_timeout=50)
    worker.start()
    wait_until(lambda: len(ran) == 2)
    wait_until(lambda: len(places(redis_client, namespace)) == 1)  # the one that is due in an hour
    worker.stop()
    assert [number for number, _ in ran] == [2, 1]
    assert ran[1][1] - sent >= 1.5
    assert list(places(redis_client, namespace).values()) == [["waiting"]]
    assert delayed(station.broker, [QUEUE]) == {QUEUE: 0}


def test_an_exported_message_is_the_one_that_a_stock_producer_would_have_sent(
    station: Station, redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    def stored() -> dict[str, Any]:
        ((id, body),) = redis_client.hgetall(keys.bodies(namespace, f"{QUEUE}.DQ")).items()
        assert redis_client.lrange(keys.queue(namespace, f"{QUEUE}.DQ"), 0, -1) == [id]
        redis_client.delete(keys.bodies(namespace, f"{QUEUE}.DQ"), keys.queue(namespace, f"{QUEUE}.DQ"))
        message: dict[str, Any] = json.loads(body)
        assert message["options"].pop("redis_message_id") == id.decode()
        message["options"]["eta"] //= 10_000
        return message

    note = station.actor(print, actor_name="note").message([], big=2**53 + 1)
    stock(redis_url, namespace).enqueue(note, delay=HOUR_MS)
    by_stock = stored()
    station.broker.enqueue(note, delay=HOUR_MS)
    assert exported(station) == Exported(moved=1)
    assert stored() == by_stock


def test_our_worker_takes_back_what_was_exported_with_its_due_time(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    ran: list[int] = []
    note = station.actor(ran.append, actor_name="note")
    note.send_with_options(args=(1,), delay=700)
    note.send_with_options(args=(2,), delay=HOUR_MS)
    before = redis_client.zrange(keys.due(namespace, QUEUE), 0, -1, withscores=True)
    assert exported(station) == Exported(moved=2)
    station.work()
    wait_until(lambda: redis_client.zrange(keys.due(namespace, QUEUE), 0, -1, withscores=True) == before)
    assert ran == []
    wait_until(lambda: ran == [1])
    wait_until(lambda: places(redis_client, namespace) == {before[1][0]: ["delayed"]})
    assert redis_client.exists(keys.bodies(namespace, f"{QUEUE}.DQ")) == 0


@pytest.mark.parametrize("lose", ["lose_reply", "lose_request"])
def test_nothing_is_lost_or_doubled_when_a_script_is_lost_or_the_export_is_run_twice(
    lose: str, proxy: Proxy, redis_client: redis.Redis, namespace: str, stations: Keep
) -> None:
    station = stations(Station(proxy.url, namespace))
    note = station.actor(print, actor_name="note")
    count = 2 * CHUNK + 7
    list(station.broker.enqueue_many((note.message(n) for n in range(count)), delay=HOUR_MS))
    getattr(proxy, lose)(2)
    assert exported(station) == Exported(moved=count)
    assert proxy.lost
    assert exported(station) == Exported()
    found = places(redis_client, namespace)
    assert len(found) == count
    assert set(map(tuple, found.values())) == {("waiting",)}
    assert redis_client.hlen(keys.bodies(namespace, f"{QUEUE}.DQ")) == count
    assert redis_client.exists(keys.bodies(namespace, QUEUE)) == 0


def test_what_changed_since_it_was_read_stays_where_it_is(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    station.actor(print, actor_name="note").send_with_options(args=(1,), delay=HOUR_MS)
    ((id, due),) = redis_client.zrange(keys.due(namespace, QUEUE), 0, -1, withscores=True)
    asked = [keys.due(namespace, QUEUE), keys.bodies(namespace, QUEUE)]
    asked += [keys.queue(namespace, f"{QUEUE}.DQ"), keys.bodies(namespace, f"{QUEUE}.DQ")]
    body = redis_client.hget(keys.bodies(namespace, QUEUE), id)
    script = station.broker.own_scripts.export
    assert script(keys=asked, args=[id, int(due), b"another body", b"fresh"]) == 0
    assert script(keys=asked, args=[id, int(due) + 1, body, b"fresh"]) == 0
    assert places(redis_client, namespace) == {id: ["delayed"]}
    assert script(keys=asked, args=[id, int(due), body, b"fresh"]) == 1
    assert places(redis_client, namespace) == {id: ["waiting"]}


def test_what_cannot_be_read_stays_and_is_counted(station: Station, redis_client: redis.Redis, namespace: str) -> None:
    note = station.actor(print, actor_name="note")
    for id in (b"broken", b"\xff"):
        body = b"{" if id == b"broken" else note.message(0).encode()
        redis_client.hset(keys.bodies(namespace, QUEUE), id, body)
        redis_client.zadd(keys.due(namespace, QUEUE), {id: 5})
    redis_client.zadd(keys.due(namespace, QUEUE), {"without a body": 6})
    list(station.broker.enqueue_many((note.message(n) for n in range(CHUNK)), delay=HOUR_MS))
    assert exported(station) == Exported(moved=CHUNK, unreadable=3)
    assert delayed(station.broker, [QUEUE]) == {QUEUE: 3}


def test_it_refuses_while_one_of_our_workers_serves_the_queue_and_says_which(station: Station) -> None:
    station.actor(print, actor_name="note").send_with_options(args=(1,), delay=HOUR_MS)
    worker = station.work()
    worker_id = worker.pump.worker_id
    wait_until(lambda: station.broker.client.hexists(keys.workers(station.namespace), worker_id))
    began = time.monotonic()
    with pytest.raises(StillServed, match=f"{worker_id} serves {QUEUE}"):
        require_nobody_serves(station.broker, [QUEUE])
    assert time.monotonic() - began < 10  # it was seen to beat; only a silent one is watched for longer
    with pytest.raises(StillServed, match=worker_id):
        exported(station)
    require_nobody_serves(station.broker, ["another"])
    worker.stop()
    require_nobody_serves(station.broker, [QUEUE])
    assert exported(station) == Exported(moved=1)


def test_a_killed_worker_is_reaped_before_the_export_and_what_it_held_is_for_stock_again(
    station: Station, redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    wait = station.actor(print, actor_name="wait_for_release")
    with process("ours", redis_url, namespace) as worker:
        wait.send("x")
        wait_until(lambda: redis_client.get(f"{namespace}:runs:x") == b"1")
        worker.kill()
    require_nobody_serves(station.broker, [QUEUE], lost_after=LOST_AFTER)
    assert list(places(redis_client, namespace).values()) == [["waiting"]]


def test_suspects_are_at_the_front_of_their_queue_again(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    redis_client.rpush(keys.queue(namespace, QUEUE), "waits")
    redis_client.rpush(keys.suspects(namespace, QUEUE), "first", "second")
    assert list(export(station.broker, QUEUE)) == []
    assert redis_client.lrange(keys.queue(namespace, QUEUE), 0, -1) == [b"first", b"second", b"waits"]


def test_the_command_line_counts_first_and_moves_only_when_told(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = station.actor(print, actor_name="note")
    list(station.broker.enqueue_many((note.message(n) for n in range(3)), delay=HOUR_MS))
    monkeypatch.setattr(cli_broker, "process_broker", lambda: station.broker)
    app: Any = SimpleNamespace(lanes=[SimpleNamespace(queues=(QUEUE, "other"))])

    def run(*words: str) -> str:
        return CliRunner().invoke(cli_broker.cli, ["export-delayed", *words], obj=lambda: app).output

    assert f"{QUEUE}: 3 delayed\nother: 0 delayed\n3 messages would move" in run()
    assert delayed(station.broker, [QUEUE]) == {QUEUE: 3}
    assert run("--queue", QUEUE, "--yes") == f"{QUEUE}: 3 moved to stock's delay queue.\n"
    assert "0 moved" in run("--yes")
