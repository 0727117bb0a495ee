"""From when on a queue is unhealthy; ages are night time. `check_queue_health` judges by these each minute."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Threshold:
    """More waiting messages, more dead letters, or an older waiting message than this is worth waking somebody."""

    ready: int
    dead: int
    oldest_age: timedelta


DEFAULT = Threshold(ready=1_000, dead=0, oldest_age=timedelta(minutes=30))

THRESHOLDS = {
    # A fan-out sends a message for each account; two customers' worth of growth before it is news.
    "transaction_sync": Threshold(ready=5_000, dead=20, oldest_age=timedelta(hours=1)),
    # A message a subscription, once a day; an hour later the gateway is down.
    "charging": Threshold(ready=5_000, dead=0, oldest_age=timedelta(hours=1)),
    # An upload of 95 files takes its time; several at once are a busy morning.
    "uploads": Threshold(ready=1_000, dead=10, oldest_age=timedelta(hours=2)),
    # A message a chain of a backlog; the backlog itself is the balancer's to watch.
    "transaction_postprocess": Threshold(ready=50, dead=10, oldest_age=timedelta(hours=2)),
    # Nobody watches; the morning does.
    "agent_batch": Threshold(ready=500, dead=5, oldest_age=timedelta(hours=3)),
    # A person watches a spinner.
    "agent_realtime": Threshold(ready=20, dead=0, oldest_age=timedelta(minutes=5)),
    # The probe itself runs here: an old message means that the alarm is late.
    "housekeeping": Threshold(ready=50, dead=0, oldest_age=timedelta(minutes=15)),
}
