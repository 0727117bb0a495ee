"""The bookkeeping's lanes, and the soak's."""

from __future__ import annotations

from datetime import timedelta

from config.lanes_of_books import LANES as BOOKS

from fleet import Budget, Lane, Retry

LANES = [
    *BOOKS,
    Lane(
        "soak",
        queues=("soak",),
        waits_for="nobody",
        processes=2,
        threads=4,
        kill_rss=512 << 20,
        budget=Budget(timedelta(seconds=20), timedelta(seconds=30), because="its jobs take a moment each"),
        retry=Retry(attempts=20, first=timedelta(seconds=30), longest=timedelta(minutes=5)),
        drain=timedelta(seconds=10),
        dead_kept_for=timedelta(days=3650),  # night time, and to the soak's end: a letter that is gone counts as lost
    ),
]
