"""A worker that ends leaves the record only when it is sure to hold nothing."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis

from fleet.broker import keys
from fleet.workers import worker as module
from tests.broker.station import Station
from tests.waiting import wait_until


@pytest.mark.parametrize("hangs", [False, True])
def test_one_whose_last_turn_got_no_answer_stays_on_record_to_be_reaped(
    station: Station, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    monkeypatch.setattr(module, "_LAST_TURN_SECONDS", 0.2)
    station.actor(lambda: None, actor_name="note")
    worker, answered, asked = station.work(), threading.Event(), threading.Event()
    on_record = keys.workers(station.namespace)
    wait_until(lambda: redis_client.hexists(on_record, worker.pump.worker_id))
    asks: Any = worker.pump._script

    def slowly(**turn: Any) -> Any:
        asked.set()
        answered.wait(5)
        return asks(**turn)

    if hangs:
        worker.pump._script = slowly
        worker.pump.wake_all()
        assert asked.wait(5)
    worker.stop()
    assert redis_client.hexists(on_record, worker.pump.worker_id) == hangs
    answered.set()
    worker.pump.join()
