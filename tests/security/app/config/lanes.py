"""One lane for what a test has done, one for housekeeping."""

from __future__ import annotations

from datetime import timedelta

from fleet import Budget, Lane, Retry

BUDGET = Budget(timedelta(minutes=2), timedelta(minutes=3), because="no job of a test takes a second")
RETRY = Retry(attempts=2, first=timedelta(milliseconds=100), longest=timedelta(milliseconds=100))
LANES = [
    Lane("work", ["work"], waits_for="a test", processes=2, threads=2, nice=10, budget=BUDGET, retry=RETRY),
    Lane("keeping", ["keeping"], waits_for="Redis", processes=1, threads=2, budget=BUDGET, retry=RETRY),
]
