"""An entry of each kind; a night minute is a second in the tests."""

from __future__ import annotations

from datetime import time, timedelta

from fleet import Elastic, Entry

MINUTE = timedelta(minutes=1)
SCHEDULE = [
    Entry("ticks", every=2 * MINUTE, expires=2 * MINUTE, because="a test waits for its slots"),
    Entry("keep", every=5 * MINUTE, expires=5 * MINUTE, because="a test waits for one round of it"),
    Entry(
        "sorts",
        cron="0 4 * * *",
        expires=timedelta(hours=2),
        because="after what the test has played of its night",
        elastic=Elastic(
            window=(time(0, 30), time(6, 15)),
            day=time(6, 30),
            slot=time(4, 0),
            backlog="actors.work:rows",
            chunk=5,
            cap=4,
            because="a test looks on whether its chains are seeded",
        ),
    ),
]
