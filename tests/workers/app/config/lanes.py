"""The lanes of the tests: one child or two of one thread each, and a drain that is long or short."""

from __future__ import annotations

import os
from datetime import timedelta

from fleet import Budget, Lane, Retry

LANES = [
    Lane(
        "jobs",
        queues=["jobs"],
        waits_for="a file of the test",
        processes=int(os.environ.get("TEST_PROCESSES", "1")),
        threads=1,
        prefetch=int(os.environ.get("TEST_PREFETCH", "1")),
        budget=Budget(timedelta(minutes=2), timedelta(minutes=3), because="the slowest test here waits ten seconds"),
        retry=Retry(attempts=2, first=timedelta(seconds=1), longest=timedelta(seconds=1)),
        drain=timedelta(seconds=float(os.environ.get("TEST_DRAIN", "30"))),
    )
]
