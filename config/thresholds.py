"""From when on a queue is unhealthy, in night time; the leading beat and `check_queue_health` judge by these.

A queue that is not here is held to `fleet.thresholds.DEFAULT`. Dead letters are told from the first on, everywhere.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from beat.balancer import BalancerRules
from fleet.thresholds import DEFAULT, Limit, Thresholds


def _limit(most: float, because: str, *, for_: float = 2, keep: float = 10) -> Limit:
    """Of an age or a lag, in minutes."""
    return Limit(timedelta(minutes=most), for_=timedelta(minutes=for_), keep=timedelta(minutes=keep), because=because)


def _depth(most: int, because: str) -> Limit:
    return replace(DEFAULT.depth, most=most, because=because)


THRESHOLDS = {
    "transaction_sync": Thresholds(
        hurts="every customer whose transactions are to be there in the morning",
        age=_limit(60, "a fan-out's last account waits for a slow aggregator; an hour is two of its slow episodes"),
        lag=_limit(60, "the next entry counts on the accounts of this one", for_=5),
        depth=_depth(5_000, "a fan-out sends a message an account; two customers' worth of growth before it is news"),
        dead=DEFAULT.dead,
    ),
    "charging": Thresholds(
        hurts="us: subscriptions are not charged, and whose card was refused is not told before breakfast",
        age=_limit(60, "a message a subscription, once a day; an hour later the gateway is down"),
        lag=_limit(60, "invoices at seven count on charges that were tried", for_=5),
        depth=_depth(5_000, "a message a subscription; twice of what there are"),
        dead=DEFAULT.dead,
    ),
    "uploads": Thresholds(
        hurts="whoever uploaded receipts and looks for what was read from them",
        age=_limit(120, "an upload of 95 files takes its time; several at once are a busy morning"),
        lag=_limit(90, "an upload's last file starts when 94 before it are read", for_=10),
        depth=DEFAULT.depth,
        dead=DEFAULT.dead,
    ),
    "transaction_postprocess": Thresholds(
        hurts="nobody before the office opens; then whoever looks for rows that the night should have sorted",
        age=_limit(120, "a chunk waits for uploads and for a chunk before it, minutes each"),
        lag=_limit(
            90, "a chunk starts behind the uploads that are there, and one in sixteen looks is its own", for_=10
        ),
        depth=_depth(
            50, "a message a chain of a backlog, of which there are four; the backlog itself is the balancer's"
        ),
        dead=DEFAULT.dead,
    ),
    "agent_batch": Thresholds(
        hurts="nobody before the office opens; then whoever reads the night's findings",
        age=_limit(180, "nobody watches; the morning does", for_=5),
        lag=_limit(180, "nobody watches; the morning does", for_=10),
        depth=_depth(500, "more than a night's findings; something sends without end"),
        dead=DEFAULT.dead,
    ),
    "agent_realtime": Thresholds(
        hurts="a person who watches a spinner",
        age=_limit(5, "nobody watches a spinner for longer; a retry's longest pause is over by then", for_=1, keep=5),
        lag=_limit(2, "a spinner that does not move for two minutes is taken for broken", keep=5),
        depth=_depth(20, "five times what the lane works on at once"),
        dead=DEFAULT.dead,
    ),
    "housekeeping": Thresholds(
        hurts="on-call: janitors, mail and one of the two judges of alarms run here",
        age=_limit(15, "the alarm itself is late when messages here are"),
        lag=_limit(10, "janitors come every ten minutes, and would meet themselves", for_=5),
        depth=_depth(50, "some entries send a message a minute; an hour's worth of them"),
        dead=DEFAULT.dead,
    ),
}

BALANCER = BalancerRules(
    cores=None,  # one host; with more, the sum of those that the elastic lanes run on
    hot=timedelta(seconds=1),  # more than twice a start of a quiet night (p99 0.4 s); people do not notice less
    calm_ticks=3,  # without them the allowance turned 340 times a night instead of 4
    short_ticks=10,  # people who come and go are gone by then; each minute of it a chain is begun and turned away
    slack=0.75,  # a chain needs a core; a quarter less is what a minute's reading is off by
    reserve=0.5,  # for lanes that are not at nice 15 or more: costs little, and keeps the sync within 4 minutes
    smoothing=0.5,  # two minutes' memory: a sync that begins is seen in the next one
    safety=1.25,  # rows cost up to a fifth more late in the night, when people are at work
    day_chains=1,  # what is left by half past six trickles, behind everybody
    stale=timedelta(seconds=180),  # three readings that did not come; two may be a change of leader
    frozen_ticks=5,  # no fleet that works counts nothing for five minutes
)
