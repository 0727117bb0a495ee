"""Dead letters say why, and can be found, queued again, discarded and trimmed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq.middleware import Retries
from typer.testing import CliRunner

from fleet import Budget, Lane, Retry, cli_dead
from fleet.broker import FleetBroker, keys
from fleet.broker.dead import Filter, discard, letters, requeue, select, trim
from fleet.clock import clock
from fleet.declarations import DEAD_KEPT_FOR
from fleet.workers import watch
from fleet.workers.worker import FleetWorker
from tests.broker.letters import fill
from tests.broker.station import QUEUE, Station, stock
from tests.waiting import wait_until


class House:
    """A worker whose actor `fail` fails at once as long as `broken` is true."""

    def __init__(self, broker: FleetBroker) -> None:
        self.broker, self.broken, self.ran = broker, True, list[int]()

        @dramatiq.actor(broker=broker, max_retries=0, queue_name="work")
        def fail(number: int) -> None:
            if self.broken:
                raise ValueError(f"no. {number} is broken")
            self.ran.append(number)

        self.fail = fail
        self.worker = FleetWorker(broker, worker_threads=1)
        self.worker.start()

    def die(self, *numbers: int) -> None:
        before = len(list(letters(self.broker, ["work"])))
        for number in numbers:
            self.fail.send(number)
        wait_until(lambda: len(list(letters(self.broker, ["work"]))) == before + len(numbers))


@pytest.fixture
def house(redis_url: str, namespace: str) -> Iterator[House]:
    made = House(FleetBroker(url=redis_url, namespace=namespace, middleware=[Retries()]))
    yield made
    made.worker.stop()


def test_a_letter_says_what_was_raised_where_and_after_how_many_attempts(house: House) -> None:
    house.die(7)
    (letter,) = letters(house.broker, ["work"])
    assert (letter.actor, letter.reason, letter.details["attempts"]) == ("fail", "failed", 1)
    assert letter.exception == "ValueError('no. 7 is broken')"
    assert "in fail" in letter.details["traceback"]
    assert letter.details["worker"] == house.worker.pump.worker_id


def test_letters_are_filtered_by_actor_reason_age_and_argument(house: House) -> None:
    house.die(1, 22, 3)

    def found(which: Filter) -> list[int]:
        return [letter.message.args[0] for letter in letters(house.broker, ["work"], which) if letter.message]

    assert found(Filter(argument="22")) == [22]
    assert sorted(found(Filter(actor="fail", reason="failed"))) == [1, 3, 22]
    assert found(Filter(reason="deadline")) == []
    assert found(Filter(older_than=timedelta(hours=1))) == []


def test_a_letter_that_is_queued_again_runs_as_if_it_were_new(house: House) -> None:
    house.die(1, 2)
    house.broken = False
    assert list(requeue(house.broker, select(house.broker, ["work"]), a_second=1_000)) == ["moved", "moved"]
    wait_until(lambda: sorted(house.ran) == [1, 2])
    assert list(letters(house.broker, ["work"])) == []


def test_what_was_discarded_is_gone_and_is_discarded_once(house: House) -> None:
    house.die(1)
    chosen = select(house.broker, ["work"])
    assert [*discard(house.broker, chosen), *discard(house.broker, chosen)] == [1, 0]
    ns = house.broker.namespace
    assert house.broker.client.exists(keys.dead_bodies(ns, "work"), keys.dead_details(ns, "work")) == 0


def test_too_many_and_too_old_letters_are_trimmed_oldest_first(house: House) -> None:
    house.die(1)
    house.die(2)
    house.die(3)
    assert trim(house.broker, "work", kept_most=2) == 1
    assert [letter.message.args for letter in letters(house.broker, ["work"]) if letter.message] == [(2,), (3,)]
    assert trim(house.broker, "work", kept_for=timedelta(0)) == 2


def test_a_server_clock_that_leapt_drops_no_letter_for_its_age(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    truly = clock.real_now() - timedelta(days=20)
    died = (truly - timedelta(days=1)).timestamp()
    assert timedelta(days=20) > DEAD_KEPT_FOR
    with monkeypatch.context() as leapt:
        leapt.setattr(clock, "real_now", lambda: truly)
        fill(station.broker, 2, QUEUE, died=died)
        assert trim(station.broker, QUEUE) == 0
        assert trim(station.broker, QUEUE, kept_most=1) == 1, "how many there are needs no clock"
    assert trim(station.broker, QUEUE) == 1


def test_details_whose_letter_stock_dropped_are_dropped_too_a_bounded_number_a_call(
    house: House, redis_url: str, namespace: str
) -> None:
    house.die(1)
    theirs = stock(redis_url, namespace, dead_message_ttl=0, maintenance_chance=1_000_000)
    wait_until(lambda: theirs.do_fetch(QUEUE, 0) == [] and not list(letters(house.broker, ["work"])))
    details = keys.dead_details(namespace, QUEUE)
    house.die(2)
    house.broker.client.hset(details, mapping={f"gone-{number}": "{}" for number in range(999)})
    assert house.broker.client.hlen(details) == 1_001
    assert trim(house.broker, "work") == 0
    assert 500 <= house.broker.client.hlen(details) < 600
    wait_until(lambda: trim(house.broker, "work") == 0 and house.broker.client.hlen(details) == 1)
    (letter,) = letters(house.broker, ["work"])
    assert letter.details["attempts"] == 1


def test_letters_of_a_queue_are_dropped_while_those_of_another_cannot_be(
    station: Station, redis_client: redis.Redis, namespace: str
) -> None:
    broker = station.broker
    redis_client.set(keys.dead_details(namespace, "broken"), "no longer what it was")
    queues = ["broken", QUEUE]
    for queue in queues:
        fill(broker, 1, queue, died=1.0)
    looks = watch.Watch(
        redis_client, broker.own_scripts, namespace, list, lambda: queues, trim=lambda queue: trim(broker, queue)
    )
    looks.start()
    try:
        wait_until(lambda: not redis_client.exists(keys.dead(namespace, QUEUE)))
    finally:
        looks.stop()
    assert redis_client.zcard(keys.dead(namespace, "broken")) == 1, "a letter is dropped whole, or not"


def test_the_command_line_shows_first_and_acts_only_when_told(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.die(1, 2)
    house.broken = False
    monkeypatch.setattr(cli_dead, "process_broker", lambda: house.broker)
    app: Any = SimpleNamespace(lanes=[SimpleNamespace(queues=("work",))], actor=lambda name: None)

    def run(*words: str) -> Any:
        return CliRunner().invoke(cli_dead.cli, list(words), obj=lambda: app)

    assert "page 1, letters 1–2 of 2" in run("list").output
    assert "2 letters would be queued again" in run("requeue").output
    assert house.ran == []
    letter = next(letter for letter in letters(house.broker, ["work"], Filter(argument="1")))
    told = json.loads(run("show", letter.id).output)
    assert (told["reason"], told["attempts"], told["args"], told["queue"]) == ("failed", 1, [1], "work")
    assert datetime.fromisoformat(told["died"]) == letter.died
    assert "1 of 1 queued again" in run("requeue", "--argument", "2", "--yes").output
    wait_until(lambda: house.ran == [2])
    assert "1 of 1 dropped" in run("discard", "--yes").output


def test_letters_go_on_being_dropped_by_age_and_count_while_the_lane_is_saturated(
    station: Station, redis_client: redis.Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_TRIM_EVERY_SECONDS", 0.05)
    budget = Budget(timedelta(seconds=1), timedelta(seconds=2), because="nothing here waits for anybody else")
    retry = Retry(1, timedelta(seconds=1), timedelta(seconds=1))
    lane = Lane("l", [QUEUE], "nobody", 1, 2, budget, retry, dead_kept_for=timedelta(hours=1), dead_kept_most=10)  # type: ignore[arg-type]
    station.broker.lanes = {QUEUE: lane}
    released = threading.Event()
    wait = station.actor(lambda: released.wait(30), actor_name="wait")
    for _ in range(12):
        wait.send()
    worker = station.work(threads=2, prefetch=4)
    wait_until(lambda: worker.pump.held == 4 and redis_client.llen(keys.queue(namespace, QUEUE)) == 8)
    fill(station.broker, 600, QUEUE)  # more than a script drops
    wait_until(lambda: redis_client.zcard(keys.dead(namespace, QUEUE)) == 10)
    assert redis_client.zrange(keys.dead(namespace, QUEUE), 0, 0) == [f"{QUEUE}-000590".encode()]
    redis_client.delete(keys.dead(namespace, QUEUE), keys.dead_bodies(namespace, QUEUE))
    fill(station.broker, 5, QUEUE, died=time.time() - 3_601)
    wait_until(lambda: redis_client.exists(keys.dead(namespace, QUEUE), keys.dead_bodies(namespace, QUEUE)) == 0)
    assert worker.pump.held == 4 and worker.ends == {}
    released.set()
    station.until_empty()
