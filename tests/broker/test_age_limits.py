"""A message that is too old: stock makes it a dead letter, and a jam makes thousands; we count it and let it go."""

from __future__ import annotations

import time
from typing import Any

import dramatiq
from dramatiq.middleware import AgeLimit

from fleet.broker import keys
from middleware.expiry import Expiry
from tests.broker.station import QUEUE, Station, places, stock
from tests.waiting import wait_until


def test_a_late_message_is_a_dead_letter_of_stocks_and_none_of_ours(redis_url: str, namespace: str) -> None:
    ran: list[str] = []

    def send_late(broker: Any) -> None:
        actor = dramatiq.actor(ran.append, broker=broker, queue_name=QUEUE, actor_name="note")
        actor.send_with_options(args=("late",), max_age=20)
        actor.send("in time")
        time.sleep(0.05)

    theirs = stock(redis_url, f"{namespace}:stock", AgeLimit())  # type: ignore[no-untyped-call]
    send_late(theirs)
    worker = dramatiq.Worker(theirs, worker_timeout=50, worker_threads=1)
    worker.start()
    wait_until(lambda: list(places(theirs.client, f"{namespace}:stock").values()) == [["dead"]])
    worker.stop()
    assert ran == ["in time"]

    station = Station(redis_url, namespace, Expiry())
    ran.clear()
    send_late(station.broker)
    ours = station.work(threads=1)
    station.until_empty()
    wait_until(lambda: ours.ends == {"drop": 1, "done": 1})
    assert ran == ["in time"]
    assert not station.broker.client.exists(keys.dead(namespace, QUEUE)) and not station.letters()
    station.stop()
    theirs.close()
