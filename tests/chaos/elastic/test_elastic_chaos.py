"""Whatever dies, hangs or lies: no chain is lost or doubled, the backlog is done, and nothing that runs is cut off."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from fleet import wire
from fleet.broker import keys
from fleet.clock import clock
from tests.broker.conftest import OwnRedis
from tests.broker.conftest import own_redis as own_redis
from tests.chaos.elastic.elastic_fleet import ElasticFleet
from tests.waiting import wait_until

Begin = Callable[..., ElasticFleet]


@pytest.fixture
def fleet_of(tmp_path: Path, redis_url: str, namespace: str) -> Iterator[Begin]:
    made: list[ElasticFleet] = []

    def make(rows: int, url: str = redis_url, **more: float) -> ElasticFleet:
        made.append(ElasticFleet(tmp_path, url, namespace, rows=rows, **more))
        return made[-1]

    yield make
    for one in made:
        one.end()


def test_a_leader_that_is_killed_in_the_middle_loses_and_doubles_no_chain(fleet_of: Begin) -> None:
    fleet = fleet_of(rows=400, seconds=0.05)
    fleet.begin(1.5, beats=2)
    wait_until(lambda: fleet.done() > 60, 30)
    killed = fleet.leader()
    before, ticks = fleet.decided()[-1].epoch, fleet.ticks()
    killed.kill()
    fleet.until_done()
    wait_until(lambda: fleet.decided()[-1].epoch == before + 1)
    wait_until(lambda: fleet.ticks() > ticks)
    fleet.judge()


def test_worker_processes_that_are_killed_in_their_chunks_lose_and_double_no_chain(fleet_of: Begin) -> None:
    fleet = fleet_of(rows=500, seconds=0.05)
    fleet.begin(1.5)
    killed, drawn = set[int](), Random(6)
    for step in range(1, 6):
        wait_until(lambda step=step: fleet.done() > 60 * step, 30)  # type: ignore[misc]
        victim = drawn.choice(fleet.children())
        killed.add(victim.pid)
        victim.kill()
    fleet.until_done()
    fleet.judge(killed)


def test_while_the_balancers_thread_hangs_slots_fire_and_the_backlog_is_done_from_the_cron_slot_on(
    fleet_of: Begin,
) -> None:
    fleet = fleet_of(rows=600, seconds=0.05)
    fleet.begin(3.0)
    wait_until(lambda: fleet.done() > 30, 30)
    (fleet.rows / "hang").touch()
    wait_until(lambda: not fleet.client.exists(keys.allowance(fleet.namespace, "sort")))
    wait_until(lambda: not fleet.client.hlen(keys.bodies(fleet.namespace, "jobs")))
    held, ticks, begins = fleet.done(), fleet.ticks(), sum(1 for _ in fleet.chunks())
    assert held < fleet.count
    fleet.until(3.9)
    assert (fleet.done(), sum(1 for _ in fleet.chunks())) == (held, begins)
    fleet.until_done()
    wait_until(lambda: fleet.ticks() > ticks)
    assert not fleet.client.exists(keys.allowance(fleet.namespace, "sort"))
    fleet.judge()


def test_without_any_beat_from_the_slot_on_its_message_starts_the_night_and_chains_go_on_by_themselves(
    fleet_of: Begin,
) -> None:
    fleet = fleet_of(rows=300, seconds=0.02)
    (fleet.rows / "hang").touch()
    fleet.begin(3.5, lane=False)
    bodies = keys.bodies(fleet.namespace, "jobs")
    wait_until(lambda: any(b"@" in id for id in fleet.client.hkeys(bodies)), 30)
    fleet.leader().kill()
    fleet.client.delete(keys.chains(fleet.namespace, "sort"))
    for id in fleet.client.hkeys(bodies):
        if b"#" in id:  # what the beat's last pass has seeded already: only the slot's message is left
            fleet.client.hdel(bodies, id)
    fleet.start("work", "jobs")
    fleet.until_done()
    assert {number for number, *_ in fleet.chunks()} == {0, 1, 2, 3}
    fleet.judge()


@pytest.mark.parametrize("ages", [pytest.param("standing", marks=pytest.mark.soak), "moving"])
def test_readings_that_stand_still_under_fresh_stamps_make_it_the_cron_and_the_backlog_is_done(
    fleet_of: Begin, ages: str
) -> None:
    fleet = fleet_of(rows=700, seconds=0.05)
    fleet.begin(3.0)
    wait_until(lambda: fleet.done() > 30, 30)
    stored = keys.readings(fleet.namespace)
    wait_until(lambda: any(one["in_flight"] for one in json.loads(fleet.client.hget(stored, "reading"))["queues"]))
    frozen, stop = json.loads(fleet.client.hget(stored, "reading")), threading.Event()

    def lie() -> None:
        while not stop.wait(0.01):
            if ages == "moving":  # what a probe reckons anew at each look, of counts that stand
                for one in frozen["queues"]:
                    one["oldest_age"] = one.get("oldest_age", 0.0) + 0.01
                    one["rate_out"] = one.get("rate_out", 1.0) * 1.0001
                for one in frozen["lanes"].values():
                    one["cpu_cores"] = one.get("cpu_cores", 1.0) * 1.0001
            told = json.dumps(frozen)
            fleet.client.hset(stored, mapping={"reading": told, "at": wire.to_ms(clock.real_now())})

    liar = threading.Thread(target=lie)
    liar.start()
    try:
        wait_until(lambda: fleet.reasons()[-1] == "blind", 20)
        wait_until(lambda: not fleet.client.hlen(keys.bodies(fleet.namespace, "jobs")))
        assert fleet.decided()[-1].places == 0
        fleet.until_done()
    finally:
        stop.set()
        liar.join()
    # A true reading may slip in between two lies, and then it is said again.
    assert 1 <= fleet.logged("balancer_blind") <= fleet.logged("balancer_sees_again") + 1
    fleet.judge()


def test_a_redis_that_is_killed_and_comes_back_in_the_middle_loses_and_doubles_no_chain(
    fleet_of: Begin, own_redis: OwnRedis
) -> None:
    fleet = fleet_of(rows=300, url=own_redis.url, seconds=0.05)
    fleet.begin(1.5)
    wait_until(lambda: fleet.done() > 60, 30)
    own_redis.kill()
    time.sleep(1.0)  # an outage of two night minutes; what is awaited is that it lasts
    own_redis.start()
    fleet.until_done()
    fleet.judge()
