"""The first cut of the alarm: a queue over a threshold is one CRITICAL line that names it, the figure and the limit."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from books import queue_health
from config import thresholds
from config.thresholds import Threshold
from fleet.app import process_broker
from fleet.broker import keys

QUEUE = "agent_realtime"


@pytest.fixture
def realtime(environment: Any) -> Any:
    """A broker of the test's own namespace with the realtime queue declared."""
    broker = process_broker()
    broker.declare_queue(QUEUE)
    return broker


def _lines() -> list[Any]:
    with capture_logs() as logs:
        queue_health.check()
    return [line for line in logs if line["event"] == "queue_unhealthy" and line["queue"] == QUEUE]


def test_an_empty_queue_says_nothing(realtime: Any) -> None:
    assert _lines() == []


def test_a_dead_letter_more_than_allowed_is_one_critical_line(realtime: Any) -> None:
    allowed: Threshold = thresholds.THRESHOLDS[QUEUE]
    ids = {f"message-{number}": 1 for number in range(allowed.dead + 1)}
    realtime.client.zadd(keys.dead(realtime.namespace, QUEUE), ids)
    (line,) = _lines()
    assert line["log_level"] == "critical"
    assert str(allowed.dead) in str(line["threshold"])


def test_a_queue_deeper_than_allowed_is_one_critical_line(realtime: Any) -> None:
    allowed: Threshold = thresholds.THRESHOLDS[QUEUE]
    realtime.client.rpush(keys.queue(realtime.namespace, QUEUE), *(f"m{n}" for n in range(allowed.ready + 1)))
    (line,) = _lines()
    assert line["log_level"] == "critical"
    assert str(allowed.ready) in str(line["threshold"])
