"""Judges what stands in the queues against `config/thresholds.py`; a figure over its threshold is one CRITICAL line.

Not guaranteed: that a jam of the housekeeping lane itself is told; its own pool makes that unlikely, and an absent
probe is for the outside to notice. A queue without thresholds is held to the default ones.
"""

from __future__ import annotations

from datetime import timedelta

from config.thresholds import DEFAULT, THRESHOLDS, Threshold
from fleet import probe
from fleet.logs import get_logger
from fleet.probe import QueueReading

log = get_logger(__name__)


def check() -> int:
    """Read every queue and judge it; returns how many figures were over."""
    over = 0
    for reading in probe.read():
        for figure, found, threshold in judge(reading, THRESHOLDS.get(reading.queue, DEFAULT)):
            log.critical("queue_unhealthy", queue=reading.queue, figure=figure, found=found, threshold=threshold)
            over += 1
    return over


def judge(reading: QueueReading, threshold: Threshold) -> list[tuple[str, str, str]]:
    """Figure, what was found, and what is allowed, for each figure that is over."""
    age = reading.oldest_age or timedelta(0)
    figures: list[tuple[str, bool, object, object]] = [
        ("ready", reading.ready > threshold.ready, reading.ready, threshold.ready),
        ("dead", reading.dead > threshold.dead, reading.dead, threshold.dead),
        ("oldest_age", age > threshold.oldest_age, age, threshold.oldest_age),
    ]
    return [(figure, str(found), str(allowed)) for figure, over, found, allowed in figures if over]
