"""The lanes, cut by what their work waits for; each a process pool of its own, so that none starves another."""

from __future__ import annotations

from datetime import timedelta

from fleet import Budget, Lane, Retry

MIB = 1 << 20
# What a process takes when it has imported everything: 115 MiB. Each lane's memory limit in config/deploy/kubernetes
# holds its processes and one suspect up to kill_rss; `fleet check` compares.

LANES = [
    Lane(
        "transaction_sync",
        queues=("transaction_sync", "charging"),
        waits_for="somebody else's bank or payment API",
        processes=1,
        threads=128,  # idle on sockets; an aggregator that answers in a minute must not stop the others
        max_rss=384 * MIB,
        kill_rss=512 * MIB,  # 128 answers of a bank at once are tens of MiB beside the imports
        budget=Budget(
            soft=timedelta(seconds=600),
            hard=timedelta(seconds=900),
            because="a pass over all accounts at the aggregator's usual second each, with a slow episode in it",
        ),
        retry=Retry(attempts=8, first=timedelta(minutes=1), longest=timedelta(minutes=30)),
        drain=timedelta(seconds=30),
    ),
    Lane(
        "transaction_postprocess",
        queues=("uploads", "transaction_postprocess"),
        people=("uploads",),  # fetched first: what a person just uploaded starts before any chunk of a backlog
        warm="books.warming:people",
        waits_for="CPU, OCR, a model",
        processes=2,
        threads=2,  # one that reads holds a core, one document at a time a process; one that sorts waits for the model
        prefetch=2,  # what runs, and no more: a chunk fetched ahead would wait while another process idles
        max_rss=1024 * MIB,  # 330 MiB after forty receipts, 500 after a large scan: what stays above has leaked
        kill_rss=1536 * MIB,  # a scan at 600 dpi peaks at 1,000 MiB, most of it the decoded picture
        nice=19,  # a backlog takes what the sync and people leave; simulated, that is most of what a controller gains
        budget=Budget(
            soft=timedelta(seconds=600),
            hard=timedelta(seconds=900),
            because="OCR of a long scan on one core, then a model answer at its p99 of 35 s and a second try",
        ),
        retry=Retry(attempts=5, first=timedelta(seconds=30), longest=timedelta(minutes=15)),
        drain=timedelta(seconds=45),
    ),
    Lane(
        "agent_batch",
        queues=("agent_batch",),
        waits_for="a model, nobody watching",
        processes=1,
        threads=4,
        max_rss=384 * MIB,
        kill_rss=512 * MIB,  # four conversations with a model, a few MiB each beside the imports
        nice=19,  # as the lane above
        budget=Budget(
            soft=timedelta(minutes=30),
            hard=timedelta(minutes=40),
            because="eight model steps, one of which may meet the worst answer seen in production, 11 minutes",
        ),
        retry=Retry(attempts=5, first=timedelta(minutes=1), longest=timedelta(minutes=30)),
        drain=timedelta(seconds=60),
    ),
    Lane(
        "agent_realtime",
        queues=("agent_realtime",),
        waits_for="a model, a person watching a spinner",
        processes=1,
        threads=4,  # reserved; never niced
        max_rss=384 * MIB,
        kill_rss=512 * MIB,  # as the lane above
        people=("agent_realtime",),
        warm="books.warming:people",  # the model's SDK is half a second of a core, in which a person would wait
        budget=Budget(
            soft=timedelta(seconds=90),
            hard=timedelta(seconds=120),
            because="one model answer at its p99 of 35 s and a second try; after that the person should see a sentence",
        ),
        retry=Retry(attempts=3, first=timedelta(seconds=2), longest=timedelta(seconds=30)),
        drain=timedelta(seconds=30),
    ),
    Lane(
        "housekeeping",
        queues=("housekeeping",),
        waits_for="the database",
        processes=1,
        threads=4,  # a pool of its own, so that a jam elsewhere cannot mute the alarm
        max_rss=384 * MIB,
        kill_rss=512 * MIB,  # an import reads its file row by row; more is a job that should not take the alarm along
        budget=Budget(
            soft=timedelta(seconds=120),
            hard=timedelta(seconds=180),
            because="a few indexed statements over every customer; longer means a lock that somebody should look at",
        ),
        retry=Retry(attempts=3, first=timedelta(seconds=10), longest=timedelta(minutes=5)),
        drain=timedelta(seconds=20),
    ),
]
