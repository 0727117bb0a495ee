"""One lane of four processes for the chunks; nobody works the other."""

from __future__ import annotations

from datetime import timedelta

from fleet import Budget, Lane, Retry

BUDGET = Budget(timedelta(minutes=2), timedelta(minutes=3), because="a chunk of the test takes a fraction of a second")
RETRY = Retry(attempts=3, first=timedelta(seconds=1), longest=timedelta(seconds=1))
LANES = [
    Lane("jobs", ("jobs",), "a file of the test", processes=4, threads=1, prefetch=1, budget=BUDGET, retry=RETRY),
    Lane("ticks", ("ticks",), "nobody", processes=1, threads=1, budget=BUDGET, retry=RETRY),
]
