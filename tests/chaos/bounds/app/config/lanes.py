"""Budgets of seconds, so that the bound of each lane is a matter of seconds too."""

from __future__ import annotations

from datetime import timedelta

from fleet import Budget, Lane, Retry

HARD = timedelta(seconds=4)
LEASE = 2 * HARD  # both hard budgets of a job and of the process beside it, and nothing on top
WORK = Budget(timedelta(seconds=3), HARD, because="what the test waits for a parcel")
JANITOR = Budget(timedelta(seconds=2), timedelta(seconds=3), because="a look at a few dozen parcels of the test")
RETRY = Retry(attempts=2, first=timedelta(seconds=1), longest=timedelta(seconds=1))
LANES = [
    Lane("jobs", ["parcels"], "the test", processes=2, threads=4, prefetch=6, budget=WORK, retry=RETRY),
    Lane("housekeeping", ["housekeeping"], "PostgreSQL", processes=1, threads=2, budget=JANITOR, retry=RETRY),
]
