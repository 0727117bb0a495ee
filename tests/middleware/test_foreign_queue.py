"""A message is of the queue that it was fetched from, whatever queue its body names: anybody can write a body."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from prometheus_client import REGISTRY

from fleet import deadline, flow, queue, quota
from fleet.actor import current_message
from fleet.broker import keys
from fleet.clock import clock
from fleet.workers.board import Board
from fleet.workers.verdicts import Verdicts
from fleet.workers.worker import FleetWorker
from tests.middleware.conftest import LANE, Counted
from tests.waiting import wait_until

FOREIGN = ("of-nobody", "work.DQ", "other.DQ", "work.XQ", "", "of-nobody " * 20_000)
named = pytest.mark.parametrize("foreign", FOREIGN, ids=[name[:9] or "empty" for name in FOREIGN])


def put(house: Any, actor: Any, foreign: str) -> None:
    """A body in the lane's queue that names another."""
    client, ns = house.broker.client, house.broker.namespace
    sent = {**actor.message().asdict(), "queue_name": foreign}
    client.hset(keys.bodies(ns, "work"), "m", json.dumps(sent))
    client.rpush(keys.queue(ns, "work"), "m")


@named
def test_its_budget_is_that_of_the_lane_which_runs_it(house: Any, foreign: str) -> None:
    found: list[tuple[str, timedelta | None]] = []

    def look() -> None:
        message = current_message()
        assert message is not None
        found.append((message.queue_name, deadline.remaining()))

    put(house, queue("work").actor(name="job")(look), foreign)
    house.work()
    house.until_idle()
    ((name, left),) = found
    assert name == "work"
    assert left is not None and timedelta(0) < left <= LANE.budget.soft


def test_its_supervisor_takes_it_away_at_the_lanes_hard_budget(house: Any, tmp_path: Path) -> None:
    ends: list[float] = []
    board = Board.create(tmp_path / "board", 1)
    put(house, queue("work").actor(name="job")(lambda: ends.extend(slot.hard for slot in board.read_all())), FOREIGN[0])
    worker = FleetWorker(house.broker, worker_timeout=50, worker_threads=1, board=board)
    worker.start()
    try:
        house.until_idle()
    finally:
        worker.stop()
    (hard,) = ends
    assert 0 < hard - clock.monotonic() <= LANE.budget.hard.total_seconds()


@named
def test_metrics_and_flow_know_the_served_queue_alone(
    house: Any, redis_client: redis.Redis, counted: Counted, foreign: str
) -> None:
    before = queues_in_metrics()
    put(house, queue("work").actor(name="job")(lambda: None), foreign)
    house.work()
    house.until_idle()
    house.stop()
    assert counted("fleet_messages_total", queue="work", actor="job", outcome="done") == 1
    assert counted("fleet_jobs_running", queue="work") == 0
    assert queues_in_metrics() <= before | {"work"}
    minute = flow.minute_of(clock.now())
    told = flow.summed(redis_client.hgetall(keys.flow(house.broker.namespace, minute - back)) for back in range(3))
    assert told.queues.keys() == {"work"}


def queues_in_metrics() -> set[str]:
    return {sample.labels.get("queue", "") for metric in REGISTRY.collect() for sample in metric.samples}


@named
def test_its_tries_are_those_of_the_lane_and_each_stands_in_the_served_queue(house: Any, foreign: str) -> None:
    tries: list[str] = []

    def fail() -> None:
        message = current_message()
        assert message is not None
        tries.append(message.queue_name)
        raise ValueError("not tonight")

    put(house, queue("work").actor(name="job")(fail), foreign)
    house.work()
    house.until_idle()
    assert tries == ["work"] * LANE.retry.attempts
    (letter,) = house.dead()
    assert letter.queue_name == "work", "as its last retry was stored"


def test_people_wait_for_it_where_the_served_queue_is_theirs(house: Any) -> None:
    waited: list[bool] = []
    house.lane(people=("work",))
    put(house, queue("work").actor(name="job")(lambda: waited.append(quota.for_people())), FOREIGN[0])
    house.work()
    house.until_idle()
    assert waited == [True]


def test_what_is_told_of_a_lost_one_is_told_of_the_served_queue(house: Any) -> None:
    body = json.dumps({**queue("work").actor(name="job")(lambda: None).message().asdict(), "queue_name": FOREIGN[0]})
    message = Verdicts._read("work", "m", body.encode())
    assert message is not None and message.queue_name == "work"


def test_what_is_left_to_another_release_runs_there_as_one_of_the_served_queue(
    house: Any, redis_client: redis.Redis
) -> None:
    job = queue("work").actor(name="job")(lambda: None)
    put(house, job, FOREIGN[0])
    known = house.broker.actors.pop("job")
    house.work()
    wait_until(lambda: b'"left"' in (redis_client.hget(keys.bodies(house.broker.namespace, "work"), "m") or b""))
    ran: list[str] = []
    known.fn = lambda: ran.append(current_message().queue_name)  # type: ignore[union-attr]
    house.broker.actors["job"] = known
    house.until_idle()
    assert ran == ["work"]
