"""One process of two threads, in which a parcel may hang beside a neighbour with a longer budget."""

from __future__ import annotations

from datetime import timedelta

from fleet import Budget, Lane, Retry

HUNG = Budget(timedelta(seconds=7), timedelta(seconds=8), because="the second run outlasts the process of the first")
LEASE = timedelta(minutes=5)  # no janitor is here

LANES = [
    Lane(
        "jobs",
        queues=["jobs"],
        waits_for="a file of the test",
        processes=1,
        threads=2,
        budget=Budget(timedelta(minutes=2), timedelta(minutes=3), because="the neighbour waits as long as the test"),
        retry=Retry(attempts=3, first=timedelta(seconds=1), longest=timedelta(seconds=1)),
    )
]
