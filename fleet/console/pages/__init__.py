"""The pages of the console, a file each, in the order of the navigation.

Each is a function of the desk and the request that returns what its template shows. What a page asks of Redis does not
grow with the messages in a queue.
"""

from __future__ import annotations

from fleet.console.pages import (
    alerts,
    audit,
    balancer,
    beats,
    budgets,
    dead_letters,
    explain,
    lanes,
    night,
    now,
    runbook,
    runs,
    schedule,
)
from fleet.console.rendering import Page

PAGES: list[Page] = [
    now.PAGE,
    night.PAGE,
    alerts.PAGE,
    lanes.PAGE,
    schedule.PAGE,
    beats.PAGE,
    *dead_letters.PAGES,
    runs.PAGE,
    balancer.PAGE,
    budgets.PAGE,
    explain.PAGE,
    audit.PAGE,
    runbook.PAGE,
    schedule.ENTRY,
]
