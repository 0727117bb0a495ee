"""A fault of ours in a thread that must not die is said, and the thread goes on."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from fleet import Budget, queue
from fleet.broker import FleetBroker
from fleet.broker.pump import Pump
from fleet.settings import Settings
from fleet.watchdog import Watchdog
from fleet.workers.presence import Presence, Report, present
from fleet.workers.watch import Watch
from tests.waiting import wait_until


class Once:
    """Raises at its first call, and calls what it stands for ever after."""

    def __init__(self, then: Any) -> None:
        self._then, self.calls = then, 0

    def __call__(self, *args: Any, **named: Any) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise LookupError("a fault of ours")
        return self._then(*args, **named)


def said(logs: list[Any], event: str) -> int:
    return sum(line["event"] == event for line in logs)


def test_a_report_that_cannot_be_made_is_not_the_last(redis_client: redis.Redis, namespace: str) -> None:
    report = Once(lambda: Report("beat", "beat"))
    presence = Presence(redis_client, namespace, report)
    with capture_logs() as logs:
        presence.start()
        try:
            wait_until(lambda: present(redis_client, namespace), 30)
        finally:
            presence.stop()
    assert said(logs, "presence_broke") == 1


def test_a_watch_that_breaks_beats_on(redis_url: str, namespace: str) -> None:
    broker = FleetBroker(lambda: Settings(redis_url=redis_url, namespace=namespace), middleware=[])
    looked = Once(lambda: None)
    watch = Watch(
        broker.client, broker.own_scripts, namespace, list, lambda: ["work"], trim=lambda queue: 0, looked=looked
    )
    with capture_logs() as logs:
        watch.start()
        wait_until(lambda: looked.calls > 2, 30)
        watch.stop()
    assert said(logs, "watch_broke") == 1
    broker.close()


def test_a_turn_that_breaks_gives_the_worker_a_new_id_and_messages_go_on(
    house: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, done = Pump._take, threading.Event()
    once = Once(take)
    monkeypatch.setattr(Pump, "_take", lambda *args: once(*args))
    job = queue("work").actor(name="job")(done.set)
    with capture_logs() as logs:
        house.work()
        wait_until(lambda: said(logs, "turn_broke"), 30)
        job.send()
        assert done.wait(10)
        house.stop()
    assert said(logs, "turn_broke") == 1


def test_a_watchdog_that_breaks_strikes_on(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    strike = Watchdog._strike
    once = Once(strike)
    monkeypatch.setattr(Watchdog, "_strike", lambda *args: once(*args))

    def spin() -> None:
        while True:
            threading.Event().wait(0.01)

    short = Budget(timedelta(milliseconds=100), timedelta(seconds=30), because="a test waits for its end")
    queue("work").actor(name="spin", budget=short)(spin).send()
    with capture_logs() as logs:
        house.work()
        wait_until(lambda: said(logs, "job_deadline"), 15)
        house.stop()
    assert said(logs, "watchdog_broke") == 1
