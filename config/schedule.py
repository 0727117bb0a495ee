"""What runs when, by time of day in Berlin; `fleet schedule --at 03:10` answers from this list."""

from __future__ import annotations

from datetime import time, timedelta
from functools import partial
from typing import Any

import fleet
from fleet import Elastic

_BERLIN = "Europe/Berlin"
Entry = partial(fleet.Entry, tz=_BERLIN)
# Behind the evening's last uploads; done before the first people come, a quarter of an hour early.
_NIGHT: Any = {"window": (time(0, 30), time(6, 15)), "day": time(6, 30)}

SCHEDULE = [
    # all day
    Entry(
        "check_queue_health",
        cron="* * * * *",
        expires=timedelta(minutes=1),
        because="an alarm later than the next look is no alarm",
    ),
    Entry(
        "recover_stuck_syncs",
        cron="*/10 * * * *",
        expires=timedelta(minutes=10),
        because="a sync whose worker vanished is freed well before the next slot for banks",
    ),
    Entry(
        "requeue_stuck_runs",
        cron="*/10 * * * *",
        expires=timedelta(minutes=10),
        because="bounds how long a row may say running after its worker is gone",
    ),
    Entry(
        "relay_outbox",
        cron="*/10 * * * *",
        expires=timedelta(minutes=10),
        because="supervisors relay within seconds; this tells what still stands, how old it is, what cannot be sent",
    ),
    Entry(
        "finish_stuck_imports",
        cron="*/10 * * * *",
        expires=timedelta(minutes=10),
        because="whoever uploaded a file looks again after a coffee, and sees that it goes on or why it ended",
    ),
    Entry(
        "reap_lost_workers",
        cron="*/30 * * * *",
        expires=timedelta(minutes=10),
        because="supervisors reap within a minute; this says that they do, and finds the host on which none is left",
    ),
    Entry(
        "trim_dead_letters",
        cron="45 * * * *",
        expires=timedelta(minutes=45),
        because="running lanes trim their own; what is left belongs to lanes that are gone, and only costs memory",
    ),
    # 01:00, 11:00, 17:00
    Entry(
        "update_all_transactions",
        cron="0 1,11,17 * * *",
        expires=timedelta(hours=3),
        because="banks have closed their day by one; the later passes take what the first left behind",
    ),
    # 01:20
    Entry(
        "update_accounts",
        cron="20 1 * * *",
        expires=timedelta(hours=2),
        because="balances close behind the rows they should match, while the bank is quiet, before the audit",
    ),
    # 02:00
    Entry(
        "sync_all_active_integrations",
        cron="0 2 * * *",
        expires=timedelta(hours=2),
        because="consents that ended are known before the audit counts unsynced accounts",
    ),
    # 03:10
    Entry(
        "nightly_audit",
        cron="10 3 * * *",
        expires=timedelta(hours=2),
        because="after banks and balances, before anything is built on what they brought",
    ),
    # 04:00
    Entry(
        "categorize_uncategorized_transactions",
        cron="0 4 * * *",
        expires=timedelta(hours=2),
        because="after the audit, well before the morning invoices",
        elastic=Elastic(
            **_NIGHT,
            slot=time(4),
            backlog="books.categorizing:backlog",
            chunk=500,
            cap=2,
            because="rows come in from the first sync on, and should be sorted before the invoices of the morning",
        ),
    ),
    # 04:30
    Entry(
        "extract_backlog",
        cron="30 4 * * *",
        expires=timedelta(hours=2),
        because="the largest consumer of the processors, when neither banks nor people need them",
        elastic=Elastic(
            **_NIGHT,
            slot=time(4, 30),
            backlog="books.attachments:backlog",
            chunk=3,
            cap=2,
            because="documents wait since the day before; each takes seconds of a core, which the night has",
        ),
    ),
    # 05:00
    Entry(
        "promote_findings",
        cron="0 5 * * *",
        expires=timedelta(hours=2),
        because="the audit's findings become evals while there still is an hour to ask them in",
    ),
    # 05:10
    Entry(
        "run_evals",
        cron="10 5 * * *",
        expires=timedelta(hours=1),
        because="the model is idle before the office opens, and a result is there for breakfast",
        elastic=Elastic(
            **_NIGHT,
            slot=time(5, 10),
            backlog="books.evals:backlog",
            chunk=5,
            cap=3,  # of the lane's four threads; one is left for runs that a person looks at in the morning
            quota="model",
            because="nobody asks the model by night; what the audit found is asked behind its promotion at five",
        ),
    ),
    # 05:30
    Entry(
        "charge_subscriptions",
        cron="30 5 * * *",
        expires=timedelta(hours=3),
        because="banks and models are quiet; whose card was refused is known before its owner can call",
    ),
    # 06:00
    Entry(
        "mark_overdue_invoices",
        cron="0 6 * * *",
        expires=timedelta(hours=3),
        because="a payment that the night brought is in the books by then",
    ),
    # 07:00
    Entry(
        "send_due_invoices",
        cron="0 7 * * *",
        expires=timedelta(hours=3),
        because="mail that lies on top of the inbox when offices open; in the afternoon it would look late",
    ),
]
