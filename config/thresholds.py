"""From when on a queue is unhealthy; ages are night time. `check_queue_health` judges by these each minute."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from beat.balancer import BalancerRules


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
    # An upload of 95 files takes its time, and the sweep at 04:00 sends what its own calls left.
    "transaction_postprocess": Threshold(ready=1_000, dead=10, oldest_age=timedelta(hours=2)),
    # Nobody watches; the morning does.
    "agent_batch": Threshold(ready=500, dead=5, oldest_age=timedelta(hours=3)),
    # A person watches a spinner.
    "agent_realtime": Threshold(ready=20, dead=0, oldest_age=timedelta(minutes=5)),
    # The probe itself runs here: an old message means that the alarm is late.
    "housekeeping": Threshold(ready=50, dead=0, oldest_age=timedelta(minutes=15)),
}

BALANCER = BalancerRules(
    people=("agent_realtime",),  # the one lane in which somebody watches a spinner
    cores=None,  # one host; with more, the sum of those that the elastic lanes run on
    hot=timedelta(seconds=1),  # three times a start of a quiet night (p99 0.4 s); people do not notice less
    calm_ticks=3,  # without them the allowance turned 340 times a night instead of 4
    slack=0.75,  # a chain needs a core; a quarter less is what a minute's reading is off by
    reserve=0.5,  # for lanes that are not at nice 15 or more: costs little, and keeps the sync within 4 minutes
    smoothing=0.5,  # two minutes' memory: a sync that begins is seen in the next one
    safety=1.25,  # rows cost up to a fifth more late in the night, when people are at work
    day_chains=1,  # what is left by half past six trickles, behind everybody
    stale=timedelta(seconds=180),  # three readings that did not come; two may be a change of leader
    frozen_ticks=5,  # no fleet that works counts nothing for five minutes
)
