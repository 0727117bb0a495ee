"""An entry that a message names and no schedule has becomes no series, no counted figure and no endless claim."""

from __future__ import annotations

import random
import string
from typing import Any

import dramatiq
import pytest
import redis
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from fleet import flow, queue, wire
from fleet.broker import keys
from fleet.clock import clock
from tests.middleware.conftest import Counted
from tests.middleware.slot_rows import OF_SLOT, entry, rows, said

LONG = "".join(random.Random(7).choices(string.ascii_letters, k=5_000))  # which no index of PostgreSQL holds


@pytest.mark.parametrize(
    "options",
    [
        {wire.ENTRY: "made-up", wire.SLOT: 1_000},
        {wire.ENTRY: LONG, wire.SLOT: 1_000},
        {wire.ORIGIN: "made-up@2026-11-30T03:10:00+00:00"},
        {wire.ORIGIN: LONG},
    ],
    ids=["short", "long", "origin", "long origin"],
)
def test_one_that_came_too_late_is_counted_for_no_entry(
    house: Any, redis_client: redis.Redis, options: dict[str, Any]
) -> None:
    @dramatiq.actor(broker=house.broker, queue_name="work")
    def job() -> None: ...

    house.work()
    job.send_with_options(**options, expires_at=wire.to_ms(clock.now()) - 1_000)
    house.until_idle()
    house.stop()
    minute = flow.minute_of(clock.now())
    found = flow.summed(redis_client.hgetall(keys.flow(house.broker.namespace, minute - back)) for back in range(3))
    assert found.of("e") == {}
    assert found.queues["work"].ended == 1


def test_its_claims_are_counted_as_those_of_another(recorded: Any, counted: Counted) -> None:
    job = queue("work").actor(name="job")(lambda: None)
    recorded.work()
    for nonce in ("n-1", "n-2"):
        job.send_with_options(**{**OF_SLOT, wire.ENTRY: "made-up", wire.NONCE: nonce})
        recorded.until_idle()
    assert [entry(row) for row in rows()] == ["made-up"], "a release to come may declare it: its slot is claimed"
    assert counted("fleet_slot_claims_total", entry="other", answer="first") == 1
    assert counted("fleet_slot_claims_total", entry="other", answer="discarded") == 1
    assert "made-up" not in entries_in_metrics()


def test_one_whose_name_no_row_can_hold_runs_without_a_claim(recorded: Any) -> None:
    ran: list[int] = []
    job = queue("work").actor(name="job")(lambda: ran.append(1))
    with capture_logs() as logs:
        job.send_with_options(**{**OF_SLOT, wire.ENTRY: LONG})
        recorded.work()
        recorded.until_idle(10)
    assert ran == [1] and rows() == []
    assert not said(logs, "slots_unanswered")
    assert LONG not in entries_in_metrics()


def entries_in_metrics() -> set[str]:
    return {sample.labels.get("entry", "") for metric in REGISTRY.collect() for sample in metric.samples}
