"""What a person waits for is fetched first, and a flood of it starves nothing."""

from __future__ import annotations

import threading

import dramatiq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.broker import keys
from fleet.broker.order import PASSED_OVER_MOST, Order
from tests.broker.station import Station
from tests.waiting import wait_until

NAMES = ["uploads", "backlog", "other"]


@given(looks=st.lists(st.lists(st.sampled_from(NAMES), unique=True), max_size=100))
def test_every_look_is_at_queues_that_may_have_something_and_no_queue_is_passed_over_for_long(
    looks: list[list[str]],
) -> None:
    order, passed_over = Order(["uploads"]), dict.fromkeys(NAMES, 0)
    for wanted in looks:
        found = order.of(wanted)
        assert set(found) <= set(wanted)
        assert bool(found) == bool(wanted)
        for name in wanted:
            ahead = name not in found or (found[0] == "uploads" and name != "uploads")
            passed_over[name] = passed_over[name] + 1 if ahead else 0
            assert passed_over[name] <= PASSED_OVER_MOST
    assert passed_over["uploads"] == 0


def test_without_queues_that_come_first_the_order_is_the_rotations() -> None:
    assert Order([]).of(["b", "a"]) == ["b", "a"]


@pytest.mark.parametrize("prefetch", [1, 4])
def test_what_a_person_sent_last_starts_before_all_that_waits_but_every_sixteenth(
    station: Station, prefetch: int
) -> None:
    order: list[str] = []
    gate = threading.Event()
    broker = station.broker

    @dramatiq.actor(broker=broker, queue_name="hold")
    def hold() -> None:
        gate.wait(10)

    @dramatiq.actor(broker=broker, queue_name="uploads")
    def upload() -> None:
        order.append("upload")

    @dramatiq.actor(broker=broker, queue_name="backlog")
    def chunk() -> None:
        order.append("chunk")

    station.work(threads=1, prefetch=prefetch, people=["uploads"])
    hold.send()
    wait_until(lambda: broker.client.llen(keys.queue(station.namespace, "hold")) == 0)
    for _ in range(20):
        chunk.send()
    for _ in range(30):
        upload.send()
    gate.set()
    wait_until(lambda: len(order) == 50)
    assert order[:30].count("upload") >= (28 if prefetch == 1 else 22), order
    assert order.index("chunk") < 30, "a flood of uploads starves the backlog"
