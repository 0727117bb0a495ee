"""The alarm from end to end: what is wrong in the queues is said once, by the limits of `config/thresholds.py`."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from books import queue_health
from config.thresholds import THRESHOLDS
from fleet import alerts, readings, wire
from fleet.app import load, process_broker
from fleet.broker import FleetBroker, keys
from fleet.clock import Night, clock

ROOT = Path(__file__).resolve().parent.parent.parent
QUEUE = "agent_realtime"
LIMITS = THRESHOLDS[QUEUE]


@pytest.fixture
def house(environment: Any) -> FleetBroker:
    """The application's broker, with its lanes and schedule."""
    load(ROOT)
    return process_broker()


def lines() -> list[Any]:
    """What one look says."""
    with capture_logs() as logs:
        queue_health.check()
    return [line for line in logs if line["event"].startswith(("alert_", "probe_"))]


def wait_since(broker: FleetBroker, age: timedelta, ready: int = 1) -> None:
    """Messages that have waited for so long, in night time."""
    sent = wire.to_ms(clock.real_now() - clock.to_real(age))
    body = json.dumps({"options": {}, "message_timestamp": sent})
    broker.client.rpush(keys.queue(broker.namespace, QUEUE), *(f"m{number}" for number in range(ready)))
    broker.client.hset(keys.bodies(broker.namespace, QUEUE), mapping={f"m{number}": body for number in range(ready)})


def test_every_queue_of_the_lanes_has_limits_of_its_own(house: FleetBroker) -> None:
    assert set(THRESHOLDS) == set(house.lanes)


def test_empty_queues_say_nothing_and_are_read_and_stored(house: FleetBroker) -> None:
    assert lines() == []
    stored = readings.latest(house)
    assert stored is not None
    assert (stored.by, set(stored.queues)) == ("housekeeping", set(house.queues))


def test_an_old_message_on_a_shallow_queue_opens_one_alert_when_it_has_been_so_for_long_enough(
    house: FleetBroker,
) -> None:
    now = clock.real_now()
    clock.set_night(Night(now, now, 60.0))
    wait_since(house, timedelta(minutes=6))
    assert lines() == []
    clock.set_night(Night(now + timedelta(minutes=2), now, 60.0))
    said = {line["kind"]: line for line in lines()}
    assert set(said) == {"queue_old", "queue_unserved"}  # no worker runs here
    line = said["queue_old"]
    assert (line["event"], line["subject"], line["lane"]) == ("alert_opened", QUEUE, QUEUE)
    assert line["threshold"] == "0:05:00"
    assert "a person who watches a spinner" in line["means"]
    assert lines() == []


def test_a_dead_letter_opens_at_once_whatever_else_lies_there(house: FleetBroker) -> None:
    now = wire.to_ms(clock.real_now())
    house.client.zadd(keys.dead(house.namespace, QUEUE), {"old": now - 86_400_000})
    assert lines() == []
    house.client.zadd(keys.dead(house.namespace, QUEUE), {"new": now})
    (line,) = lines()
    assert (line["kind"], line["subject"], line["found"], line["threshold"]) == ("dead_letters", QUEUE, "1", "0")
    assert lines() == []


def test_a_deep_queue_of_fresh_messages_says_nothing(house: FleetBroker) -> None:
    wait_since(house, timedelta(0), ready=5_000)
    assert lines() == []


def test_a_slot_of_the_schedule_that_expired_opens_one_alert(house: FleetBroker) -> None:
    now = wire.to_ms(clock.now())
    verdict = {"verdict": "expired", "from": now, "to": now, "count": 1}
    house.client.xadd(keys.ledger(house.namespace, "send_due_invoices"), verdict)
    (line,) = lines()
    assert (line["kind"], line["subject"], line["lane"]) == ("slot_expired", "send_due_invoices", "housekeeping")
    assert lines() == []


def test_a_probe_that_gives_nothing_leaves_alerts_as_they_are_and_says_that_readings_are_stale(
    house: FleetBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.client.zadd(keys.dead(house.namespace, QUEUE), {"new": wire.to_ms(clock.real_now())})
    assert [line["kind"] for line in lines()] == ["dead_letters"]
    house.client.delete(keys.readings(house.namespace))
    monkeypatch.setattr("fleet.probe.look", _broken)
    now = clock.real_now()
    clock.set_night(Night(now + timedelta(hours=3), now, 1.0))  # longer than any is kept that is gone
    said = lines()
    assert [line["event"] for line in said] == ["probe_failed", "alert_opened"]
    assert (said[1]["kind"], said[1]["found"]) == ("probe_stale", "none at all")
    assert {alert.finding.kind for alert in alerts.open_alerts(house)} == {"dead_letters", "probe_stale"}


def _broken(*_: object) -> None:
    raise ValueError("an answer that nobody understands")


def test_a_beat_that_looks_no_more_is_named_by_the_other(house: FleetBroker) -> None:
    lines()
    long_ago = wire.to_ms(clock.real_now() - timedelta(minutes=4))
    house.client.hset(keys.readings(house.namespace), "by:beat", long_ago)
    (line,) = lines()
    assert (line["kind"], line["subject"]) == ("probe_stale", "beat")
