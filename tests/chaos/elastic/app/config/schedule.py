"""One elastic entry, and one that shows that slots go on."""

from __future__ import annotations

from datetime import time, timedelta

from fleet import Elastic, Entry

SCHEDULE = [
    Entry(
        "sort",
        cron="0 4 * * *",
        expires=timedelta(hours=2),
        because="after the audit, before the invoices",
        elastic=Elastic(
            window=(time(0, 30), time(6, 15)),
            day=time(6, 30),
            slot=time(4, 0),
            backlog="actors.rows:backlog",
            chunk=3,
            cap=4,
            because="banks have closed their day, and offices open at half past six",
        ),
    ),
    Entry("tick", every=timedelta(minutes=5), expires=timedelta(minutes=5), because="the test counts what fires"),
]
